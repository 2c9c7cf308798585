package kube

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/source"
)

const (
	listTimeout = time.Minute            // for one page of a list
	minBackoff  = 250 * time.Millisecond // before a list or watch that failed is tried again, doubled
	maxBackoff  = 30 * time.Second       // with each failure up to this
)

// follow keeps a kind's mirror up to date until ctx is done.
func (s *Source) follow(ctx context.Context, k kind, into *mirror) error {
	client, err := s.client(k.Resource.GroupVersion(), k.custom())
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.Resource.GroupResource(), err)
	}
	lw := s.listWatch(client, k, func(err error) { s.hear(k, err) })
	if !k.custom() {
		return s.reflect(ctx, lw, k.New(), into)
	}
	intact, err := s.intact(k)
	if err != nil {
		return fmt.Errorf("watch %s: %w", k.Resource.GroupResource(), err)
	}
	var confirming sync.WaitGroup
	defer confirming.Wait() // reflect ends when ctx is done, as confirm does
	confirming.Go(func() { into.confirm(ctx, intact) })
	return s.reflect(ctx, lw, k.New(), into)
}

// reflect lists and watches until ctx is done. A watch that ends in the usual way is taken
// up again at once where it ended; one that did not last is after a pause, and listed anew
// if need be.
func (s *Source) reflect(ctx context.Context, lw *cache.ListWatch, of runtime.Object, into cache.ReflectorStore) error {
	var reflector *cache.Reflector
	var since uint64 // the turn to which reflector belongs
	pause := minBackoff
	// Exits: ctx is done.
	for {
		turn, ends := s.intake.present()
		if reflector == nil || turn != since { // one that has followed before would go on from there
			reflector, since = cache.NewReflectorWithOptions(lw, of, into, cache.ReflectorOptions{Name: "aether"}), turn
			if m, ok := into.(*mirror); ok {
				m.begin(turn)
			}
		}
		started := time.Now()
		one, cancel := context.WithCancel(ctx)
		go func() { // ends with one
			select {
			case <-ends:
				cancel()
			case <-one.Done():
			}
		}()
		// What goes wrong was told where it did: most of it the reflector retries by itself.
		_ = reflector.ListAndWatchWithContext(one)
		cancel()
		if time.Since(started) > maxBackoff {
			pause = minBackoff
		}
		if err := run.Sleep(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, maxBackoff)
	}
}

// hear notes what the API answers about a kind.
func (s *Source) hear(k kind, err error) {
	if err == nil {
		s.intake.heard(k.feed())
		s.intake.fault(k.about(), "", "")
		return
	}
	s.intake.failed(k.feed())
	if s.intake.fault(k.about(), source.Warning, fmt.Sprintf("cannot be followed: %v", err)) {
		s.log.Warn("watch; will retry", logkey.Type, k.about(), logkey.Error, err)
	}
}

// client is a client of one group and version, in the form that costs least.
func (s *Source) client(gv schema.GroupVersion, custom bool) (rest.Interface, error) {
	c := rest.CopyConfig(s.config)
	c.GroupVersion = &gv
	c.APIPath = "/apis"
	if gv.Group == "" {
		c.APIPath = "/api"
	}
	c.NegotiatedSerializer = serializer.NewCodecFactory(s.scheme).WithoutConversion()
	c.ContentType = runtime.ContentTypeJSON
	if !custom { // the API server serves no other objects so
		c.ContentType = runtime.ContentTypeProtobuf
		c.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}
	return rest.RESTClientFor(c)
}

// get begins a request for a kind's objects.
func get(client rest.Interface, k kind) *rest.Request {
	return client.Get().NamespaceIfScoped(k.Namespace, k.Namespace != "").Resource(k.Resource.Resource)
}

// listWatch lists and watches a kind, and calls answered with each answer of the API.
func (s *Source) listWatch(client rest.Interface, k kind, answered func(error)) *cache.ListWatch {
	selector := k.Selector
	if selector == nil {
		selector = fields.Everything()
	}
	request := func(o metav1.ListOptions) *rest.Request {
		o.FieldSelector = selector.String()
		return get(client, k).VersionedParams(&o, metav1.ParameterCodec)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, listTimeout)
			defer cancel()
			list, err := request(o).Do(ctx).Get()
			if apierrors.IsForbidden(err) && s.absent(ctx, k.Namespace) {
				list, err = &metav1.List{}, nil
			}
			answered(ignoreExpired(err))
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			if err := s.ahead(ctx, client, k, o.ResourceVersion); err != nil {
				answered(ignoreExpired(err))
				return nil, err
			}
			o.Watch = true
			w, err := request(o).Watch(ctx)
			answered(ignoreExpired(err))
			if err != nil {
				return nil, err
			}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if e.Type != watch.Error {
					answered(nil)
				}
				return e, true
			}), nil
		},
	}
}

// absent reports whether it is known that there is no such namespace: with it the right to read
// what is in it goes, too, and then nothing is in it.
func (s *Source) absent(ctx context.Context, namespace string) bool {
	if namespace == "" {
		return false
	}
	client, err := s.client(corev1.SchemeGroupVersion, false)
	if err != nil {
		return false
	}
	err = client.Get().Resource("namespaces").Name(namespace).Do(ctx).Error()
	return apierrors.IsNotFound(err)
}

// ignoreExpired returns nil for an answer by which the API asks for a new list, which is
// part of the protocol.
func ignoreExpired(err error) error {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	return err
}
