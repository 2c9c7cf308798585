// Package proxypod follows the pods that run proxies: those of the shared pool, and those of
// the Deployments that we made for dedicated Gateways. So it is known of a proxy that it is
// there while it is not connected. It knows nothing of what proxies run, and changes nothing.
package proxypod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// How long after it was not found out whose a pod is that is asked again, doubled each time.
const (
	minRetry = time.Second
	maxRetry = 5 * time.Minute
)

// Config is what a Watch is made from. All but Namespaces and Log is required.
type Config struct {
	Client    *rest.Config // its rights: list and watch on pods
	Namespace string       // of the shared pool
	Shared    string       // label selector of its pods
	Dedicated string       // label selector of the pods of dedicated Gateways
	// Namespaces are those in which there can be dedicated Gateways. Empty: all.
	Namespaces []string
	// Owned returns nil for a pod that is one of a dedicated Gateway's proxies: labels are
	// anybody's to set.
	Owned   func(context.Context, svid.Workload) error
	Changed func() // called when something has changed; must not block
	Log     *slog.Logger
}

// Watch is the pods that there are.
type Watch struct {
	c         Config
	shared    cache.SharedIndexInformer
	dedicated map[string]cache.SharedIndexInformer         // by namespace; "": all
	queue     workqueue.TypedRateLimitingInterface[string] // dedicated pods of which it is not known whose they are; bounded by the pods that there are

	mu    sync.Mutex      // guards owned
	owned map[string]bool // UIDs of pods that were found to be ours
}

// New checks c. It does not call the API.
func New(c Config) (*Watch, error) {
	if c.Client == nil || c.Namespace == "" || c.Shared == "" || c.Dedicated == "" || c.Owned == nil || c.Changed == nil {
		return nil, errors.New("a watch of proxies' pods needs a client configuration, a namespace, two selectors, and whom to ask and to tell")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	client, err := kubernetes.NewForConfig(c.Client)
	if err != nil {
		return nil, fmt.Errorf("client of pods: %w", err)
	}
	w := &Watch{c: c, owned: map[string]bool{}, dedicated: map[string]cache.SharedIndexInformer{}}
	of := func(namespace, selector string) cache.SharedIndexInformer {
		return informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace),
			informers.WithTransform(trim), informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = selector }),
		).Core().V1().Pods().Informer()
	}
	w.shared = of(c.Namespace, c.Shared)
	for _, namespace := range c.Namespaces {
		w.dedicated[namespace] = of(namespace, c.Dedicated)
	}
	if len(c.Namespaces) == 0 {
		w.dedicated[metav1.NamespaceAll] = of(metav1.NamespaceAll, c.Dedicated)
	}
	return w, nil
}

// trim leaves of a pod what is asked for.
func trim(o any) (any, error) {
	p, ok := o.(*corev1.Pod)
	if !ok {
		return o, nil // a tombstone
	}
	labels := map[string]string{}
	if name, has := p.Labels[gatewayv1.GatewayNameLabelKey]; has {
		labels[gatewayv1.GatewayNameLabelKey] = name
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Labels: labels,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec:   corev1.PodSpec{ServiceAccountName: p.Spec.ServiceAccountName},
		Status: corev1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime},
	}, nil
}

// Run follows the pods until ctx is done. It is called once.
func (w *Watch) Run(ctx context.Context) error {
	w.queue = workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](minRetry, maxRetry))
	err := w.listen(ctx, w.shared, false)
	synced := []cache.InformerSynced{w.shared.HasSynced}
	for _, one := range w.dedicated {
		err = errors.Join(err, w.listen(ctx, one, true))
		synced = append(synced, one.HasSynced)
	}
	if err != nil {
		return fmt.Errorf("follow pods: %w", err) // only of an informer that runs already
	}
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.shared.RunWithContext(ctx) })
	for _, one := range w.dedicated {
		running.Go(func() { one.RunWithContext(ctx) })
	}
	running.Go(func() { // the lists are there, or ctx is done
		if cache.WaitForCacheSync(ctx.Done(), synced...) {
			w.c.Changed()
		}
	})
	running.Go(func() {
		for w.identify(ctx) { // left when the queue is shut down
		}
	})
	<-ctx.Done()
	w.queue.ShutDown()
	return ctx.Err()
}

func (w *Watch) listen(ctx context.Context, i cache.SharedIndexInformer, identify bool) error {
	changed := func(o any) {
		if p, ok := o.(*corev1.Pod); ok && identify {
			w.queue.Add(p.Namespace + "/" + p.Name)
		}
		w.c.Changed()
	}
	_, err := i.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(before, o any) {
			was, is := before.(*corev1.Pod)
			now, also := o.(*corev1.Pod)
			if is && also && was.UID != now.UID { // the end of one and the start of another, seen at once
				w.disown(was)
			}
			changed(o)
		},
		DeleteFunc: func(o any) {
			w.disown(o)
			w.c.Changed()
		},
	})
	return errors.Join(err, i.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		if ctx.Err() == nil {
			w.c.Log.Warn("pods of proxies cannot be followed; will retry", logkey.Error, err)
		}
	}))
}

// identify finds out of one pod whether it is ours; false if there will be no more. One that
// is not is asked about ever less often: what it is of may not be known yet.
func (w *Watch) identify(ctx context.Context) bool {
	key, over := w.queue.Get()
	if over {
		return false
	}
	defer w.queue.Done(key)
	namespace, _, _ := strings.Cut(key, "/")
	from := w.in(namespace)
	if from == nil {
		w.queue.Forget(key)
		return true
	}
	o, there, err := from.GetStore().GetByKey(key)
	p, is := o.(*corev1.Pod)
	if err != nil || !there || !is || !runs(p) || w.isOwned(p) {
		w.queue.Forget(key)
		return true
	}
	err = w.c.Owned(ctx, svid.Workload{
		Namespace: p.Namespace, ServiceAccount: p.Spec.ServiceAccountName, Pod: spiffeid.Pod{Name: p.Name, UID: string(p.UID)},
	})
	if err != nil {
		if ctx.Err() == nil {
			w.queue.AddRateLimited(key)
		}
		return true
	}
	w.queue.Forget(key)
	if w.own(from, key, p) {
		w.c.Changed()
	}
	return true
}

// in is the informer of dedicated Gateways' pods in a namespace; nil: there can be none.
func (w *Watch) in(namespace string) cache.SharedIndexInformer {
	if all := w.dedicated[metav1.NamespaceAll]; all != nil {
		return all
	}
	return w.dedicated[namespace]
}

// own notes that a pod is ours, unless it has gone meanwhile: that may have been told already.
// If it goes later, that is told after this.
func (w *Watch) own(from cache.SharedIndexInformer, key string, p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	o, there, err := from.GetStore().GetByKey(key)
	if now, is := o.(*corev1.Pod); err != nil || !there || !is || now.UID != p.UID {
		return false
	}
	w.owned[string(p.UID)] = true
	return true
}

func (w *Watch) disown(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	if p, ok := o.(*corev1.Pod); ok {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.owned, string(p.UID))
	}
}

func (w *Watch) isOwned(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.owned[string(p.UID)]
}

func runs(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning }

// Running returns the pods that run proxies of a scope, those that are about to end too;
// known is false until all pods were listed.
func (w *Watch) Running(s scope.Scope) (pods []fleet.Pod, known bool) {
	if !w.shared.HasSynced() {
		return nil, false
	}
	for _, one := range w.dedicated {
		if !one.HasSynced() {
			return nil, false
		}
	}
	namespace, name, dedicated := s.GatewayName()
	if !dedicated {
		for _, o := range w.shared.GetStore().List() {
			if p, is := o.(*corev1.Pod); is && runs(p) {
				pods = append(pods, podOf(p))
			}
		}
		return pods, true
	}
	from := w.in(namespace)
	if from == nil {
		return nil, true
	}
	list, err := from.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	if err != nil {
		return nil, false // there is no such index
	}
	for _, o := range list {
		if p, is := o.(*corev1.Pod); is && runs(p) && p.Labels[gatewayv1.GatewayNameLabelKey] == front.Label(name) && w.isOwned(p) {
			pods = append(pods, podOf(p))
		}
	}
	return pods, true
}

func podOf(p *corev1.Pod) fleet.Pod {
	since := p.CreationTimestamp.Time
	if p.Status.StartTime != nil {
		since = p.Status.StartTime.Time
	}
	return fleet.Pod{Name: p.Name, UID: string(p.UID), Since: since, Leaving: p.DeletionTimestamp != nil}
}
