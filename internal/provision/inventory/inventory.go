// Package inventory knows the objects that run dedicated Gateways' proxies, as the API has
// them: by their metadata, which is all that is needed to see that one is missing, is
// somebody else's, or is not as it was made. It changes nothing.
package inventory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/provision/workload"
	"aether.io/aether/internal/routing/front"
)

// Key names one object.
type Key struct {
	Resource  schema.GroupVersionResource
	Namespace string
	Name      string
}

// String is the resource, the namespace and the name.
func (k Key) String() string {
	return fmt.Sprintf("%s %s/%s", k.Resource.Resource, k.Namespace, k.Name)
}

// Config is what an Inventory is made from.
type Config struct {
	Client *rest.Config // required; its rights: get, list and watch on the resources of package workload
	// Namespaces are those that are looked at. Empty: all.
	Namespaces []string
	Changed    func()       // required: called when something has changed; it must not block
	Log        *slog.Logger // required
}

// Inventory is the objects that have our label.
type Inventory struct {
	c      Config
	client metadata.Interface
	state  atomic.Pointer[running] // nil: it does not run
}

// running is the informers of one Run.
type running struct {
	informers map[feed]cache.SharedIndexInformer
}

// feed is a resource in a namespace, or in all.
type feed struct {
	resource  schema.GroupVersionResource
	namespace string
}

// feeds is what there is to follow.
func (i *Inventory) feeds() []feed {
	namespaces := i.c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	var out []feed
	for _, resource := range workload.Resources() {
		for _, namespace := range namespaces {
			out = append(out, feed{resource, namespace})
		}
	}
	return out
}

// of is the informer that has what is in a namespace; nil: that is not looked at.
func (r *running) of(resource schema.GroupVersionResource, namespace string) cache.SharedIndexInformer {
	if all := r.informers[feed{resource, metav1.NamespaceAll}]; all != nil {
		return all
	}
	return r.informers[feed{resource, namespace}]
}

// New checks c. It does not call the API.
func New(c Config) (*Inventory, error) {
	if c.Client == nil || c.Changed == nil || c.Log == nil {
		return nil, errors.New("an inventory needs a client configuration, somebody to tell and a log")
	}
	client, err := metadata.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("client of metadata: %w", err)
	}
	return &Inventory{c: c, client: client}, nil
}

// Run follows the objects until ctx is done. It can be called again.
func (i *Inventory) Run(ctx context.Context) {
	now := &running{informers: map[feed]cache.SharedIndexInformer{}}
	var running sync.WaitGroup
	var synced []cache.InformerSynced
	for _, f := range i.feeds() {
		informer := metadatainformer.NewFilteredMetadataInformer(i.client, f.resource, f.namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
			o.LabelSelector = front.ManagedByLabel + "=" + front.FieldManager
		}).Informer()
		errs := errors.Join(
			informer.SetTransform(trim),
			informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
				if ctx.Err() == nil {
					i.c.Log.Warn("objects of proxies cannot be followed; will retry", logkey.Resource, f.resource.Resource, logkey.Namespace, f.namespace, logkey.Error, err)
				}
			}),
		)
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { i.c.Changed() }, UpdateFunc: func(any, any) { i.c.Changed() }, DeleteFunc: func(any) { i.c.Changed() },
		})
		if errs = errors.Join(errs, err); errs != nil { // only of one that has been started
			i.c.Log.Error("follow objects of proxies", logkey.Resource, f.resource.Resource, logkey.Error, errs)
		}
		now.informers[f] = informer
		synced = append(synced, informer.HasSynced)
	}
	i.state.Store(now)
	for _, informer := range now.informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	cache.WaitForCacheSync(ctx.Done(), synced...)
	i.c.Changed()
	<-ctx.Done()
	i.state.Store(nil)
	running.Wait()
}

// trim drops what nobody reads.
func trim(o any) (any, error) {
	if m, is := o.(*metav1.PartialObjectMetadata); is {
		m.ManagedFields = nil
		delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
	}
	return o, nil
}

// Complete reports whether everything that there is is known; missing names what is not.
func (i *Inventory) Complete() (missing string, complete bool) {
	now := i.state.Load()
	if now == nil {
		return "every resource", false
	}
	for _, f := range i.feeds() {
		if !now.informers[f].HasSynced() {
			return f.resource.Resource, false
		}
	}
	return "", true
}

// Get is an object; nil: there is none with our label.
func (i *Inventory) Get(k Key) *metav1.PartialObjectMetadata {
	now := i.state.Load()
	if now == nil {
		return nil
	}
	informer := now.of(k.Resource, k.Namespace)
	if informer == nil {
		return nil
	}
	o, there, err := informer.GetStore().GetByKey(k.Namespace + "/" + k.Name)
	if err != nil || !there {
		return nil
	}
	m, _ := o.(*metav1.PartialObjectMetadata)
	return m
}

// All is every object with our label.
func (i *Inventory) All() map[Key]*metav1.PartialObjectMetadata {
	out := map[Key]*metav1.PartialObjectMetadata{}
	now := i.state.Load()
	if now == nil {
		return out
	}
	for f, informer := range now.informers {
		for _, o := range informer.GetStore().List() {
			if m, is := o.(*metav1.PartialObjectMetadata); is {
				out[Key{f.resource, m.Namespace, m.Name}] = m
			}
		}
	}
	return out
}

// Look asks the API for an object, whether it has our label or not.
func (i *Inventory) Look(ctx context.Context, k Key) (*metav1.PartialObjectMetadata, error) {
	return i.client.Resource(k.Resource).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
}
