package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/provision/inventory"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/provision/workload"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// built is the objects that were made of a front.
type built struct {
	from    front.Front
	objects []workload.Object
}

// applied is what was applied last, and what the API had then.
type applied struct {
	object *unstructured.Unstructured
	now    metav1.ObjectMeta
}

// makeProxies makes what runs the proxies of dedicated Gateways, and says why some cannot have
// theirs.
func (e *Engine) makeProxies(ctx context.Context, wanted []front.Front) (refused map[key.Name]condition.Problem, errs []error) {
	refused = map[key.Name]condition.Problem{}
	missing, complete := e.inventory.Complete()
	for _, f := range wanted {
		switch {
		case f.Keep || !f.Dedicated:
			continue
		case e.c.Template == nil:
			refused[f.Gateway] = condition.Problemf(gatewayv1.GatewayReasonNoResources, "the controller has no template of proxies' pods (--proxy-template)")
			continue
		case !e.trusts(f.Gateway.Namespace) && !e.runs(f):
			refused[f.Gateway] = condition.Problemf(gatewayv1.GatewayReasonPending, "ConfigMap %s/%s, the trust bundle, is not there yet", f.Gateway.Namespace, pod.TrustConfigMap)
			continue
		case !complete:
			refused[f.Gateway] = condition.Problemf(gatewayv1.GatewayReasonPending, "what runs dedicated proxies is not known yet: %s", missing)
			continue
		}
		e.tell(f)
		objects, err := e.objectsOf(f)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, o := range objects {
			err := e.make(ctx, f, o)
			if err != nil && refused[f.Gateway].IsZero() && (final(err) || errors.Is(err, errForeign)) {
				refused[f.Gateway] = lack(err)
				if errors.Is(err, errForeign) {
					refused[f.Gateway] = condition.Problemf(gatewayv1.GatewayReasonInvalid, "%v", err)
				}
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
	}
	return refused, errs
}

// trusts reports whether a namespace has the trust bundle.
func (e *Engine) trusts(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.trust[namespace]
}

// runs reports whether a Gateway has its Deployment already.
func (e *Engine) runs(f front.Front) bool {
	return e.inventory.Get(inventory.Key{Resource: workload.Deployments, Namespace: f.Gateway.Namespace, Name: front.DeploymentName(f.Gateway, f.Class)}) != nil
}

// objectsOf makes the objects of a front, once.
func (e *Engine) objectsOf(f front.Front) ([]workload.Object, error) {
	if b, is := e.built[f.Gateway]; is && equality.Semantic.DeepEqual(b.from, f) {
		return b.objects, nil
	}
	objects, err := workload.Objects(f, e.c.Template)
	if err != nil {
		return nil, err
	}
	e.built[f.Gateway] = built{f, objects}
	return objects, nil
}

// tell says, once, what of a Gateway's pod template is dropped.
func (e *Engine) tell(f front.Front) {
	text := strings.Join(f.Proxies.Dropped, "; ")
	if e.told[f.Gateway] == text {
		return
	}
	if e.told[f.Gateway] = text; text == "" {
		delete(e.told, f.Gateway)
		return
	}
	e.c.Tell(corev1.ObjectReference{
		APIVersion: gatewayv1.GroupVersion.String(), Kind: string(object.Gateway), Namespace: f.Gateway.Namespace, Name: f.Gateway.Name, UID: f.UID,
	}, ReasonDropped, text)
}

// errForeign says that something has a name that we need.
var errForeign = errors.New("exists and is not this Gateway's")

// make applies an object if it is not there, or if it or what is wanted of it is not as it
// was when it was applied last.
func (e *Engine) make(ctx context.Context, f front.Front, o workload.Object) error {
	k := inventory.Key{Resource: o.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}
	now := e.inventory.Get(k)
	if now == nil { // or it has lost our label, or is too young to be known
		var err error
		now, err = e.inventory.Look(ctx, k)
		switch {
		case apierrors.IsNotFound(err):
			now = nil
		case err != nil:
			return fmt.Errorf("look at %s: %w", k, err)
		}
	}
	last := e.applied[k]
	switch {
	case now != nil && !front.Ours(now, f.Gateway) && !ownedBy(now, f.UID): // what we made is ours though it has lost its label
		return fmt.Errorf("%s %w", k, errForeign)
	case now != nil && now.DeletionTimestamp != nil: // there will be word of its end
		return nil
	case now != nil && last.object == o.Unstructured && same(last.now, now.ObjectMeta):
		return nil
	}
	made, err := e.apply(ctx, f, k, o.Unstructured, now != nil)
	if err != nil {
		return fmt.Errorf("apply %s: %w", k, err)
	}
	e.applied[k] = applied{object: o.Unstructured, now: metadataOf(made)}
	e.c.Log.Info("object of proxies applied", logkey.Object, k.String())
	return nil
}

func ownedBy(o metav1.Object, uid types.UID) bool {
	return uid != "" && slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == uid })
}

// apply applies an object and returns what it is then.
func (e *Engine) apply(ctx context.Context, f front.Front, k inventory.Key, o *unstructured.Unstructured, exists bool) (*unstructured.Unstructured, error) {
	if k.Resource != workload.Deployments {
		return e.patch(ctx, k, o, front.FieldManager)
	}
	if f.Proxies.Autoscaling == nil {
		return e.patch(ctx, k, o, front.FieldManager)
	}
	return e.applyScaled(ctx, k, o, exists, int64(*f.Proxies.Autoscaling.MinReplicas))
}

// patch is server-side apply: fields that others have set and we have not stay theirs, those
// of ours that others have changed are ours again.
func (e *Engine) patch(ctx context.Context, k inventory.Key, o *unstructured.Unstructured, manager string) (*unstructured.Unstructured, error) {
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return e.objects.Resource(k.Resource).Namespace(k.Namespace).
		Patch(ctx, k.Name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: manager, Force: new(true)})
}

// sweep deletes what runs proxies that no Gateway has any more.
func (e *Engine) sweep(ctx context.Context, wanted []front.Front, stay map[key.Name]bool) (errs []error) {
	if _, complete := e.inventory.Complete(); !complete {
		return nil
	}
	needed, live := map[inventory.Key]bool{}, map[key.Name]bool{}
	for _, f := range wanted {
		if live[f.Gateway] = true; f.Keep || !f.Dedicated {
			continue
		}
		if b, known := e.built[f.Gateway]; known {
			for _, o := range b.objects {
				needed[inventory.Key{Resource: o.Resource, Namespace: o.GetNamespace(), Name: o.GetName()}] = true
			}
		} else {
			stay[f.Gateway] = true // what it needs is not known
		}
	}
	for k, o := range e.inventory.All() {
		gw, is := gatewayOf(o.Annotations)
		if !is || gw.Namespace != k.Namespace || needed[k] || stay[gw] || o.DeletionTimestamp != nil {
			continue
		}
		err := e.objects.Resource(k.Resource).Namespace(k.Namespace).
			Delete(ctx, k.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.UID}, PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", k, err))
			continue
		}
		delete(e.applied, k)
		e.c.Log.Info("object of proxies deleted", logkey.Object, k.String())
	}
	for gw := range e.built {
		if !live[gw] {
			delete(e.built, gw)
			delete(e.told, gw)
		}
	}
	return errs
}

// same reports whether an object is as it was when it was applied last, or was read before
// that. What has no generation is compared by its version.
func same(then, now metav1.ObjectMeta) bool {
	if then.UID != now.UID {
		return false
	}
	if before(now.ResourceVersion, then.ResourceVersion) || now.ResourceVersion == then.ResourceVersion {
		return true
	}
	own := func(m metav1.ObjectMeta) map[string]string {
		out := maps.Clone(m.Annotations)
		maps.DeleteFunc(out, func(name, _ string) bool {
			return strings.HasPrefix(name, "deployment.kubernetes.io/") || strings.HasPrefix(name, "autoscaling.")
		})
		return out
	}
	return now.Generation > 0 && then.Generation == now.Generation && maps.Equal(then.Labels, now.Labels) && maps.Equal(own(then), own(now)) &&
		slices.EqualFunc(then.OwnerReferences, now.OwnerReferences, func(a, b metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(a, b) })
}

// before reports whether a resourceVersion is older than another; they are numbers that
// grow (KEP-5504).
func before(a, b string) bool {
	x, errA := strconv.ParseUint(a, 10, 64)
	y, errB := strconv.ParseUint(b, 10, 64)
	return errA == nil && errB == nil && x < y
}

func metadataOf(o *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		Labels: o.GetLabels(), Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(),
	}
}
