package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// reconcile does what is planned for what was seen last. What it does comes back by
// Observe, so a plan on something old is made again on something newer. It returns when
// there is something to do though nothing changed.
func (e *Engine) reconcile(ctx context.Context) (again time.Time, err error) {
	in, complete := e.gather()
	if !complete {
		return time.Time{}, nil
	}
	refused, errs := e.makeProxies(ctx, in.Wanted)
	for gw := range refused {
		in.Refused[gw] = true
	}
	in.Last = e.last
	p := Services(in)
	e.last = p.Last
	lacks := p.Lacks
	maps.Copy(lacks, refused)
	errs = append(errs, e.applyServices(ctx, p, lacks)...)
	errs = append(errs, e.deleteServices(ctx, p)...)
	errs = append(errs, e.sweep(ctx, in.Wanted, p.Stay)...)
	e.say(lacks)
	return p.Again, errors.Join(errs...)
}

// gather is what is known; incomplete before that is all there is.
func (e *Engine) gather() (in Input, complete bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	in = Input{
		Namespace: e.c.Namespace, Selector: e.c.Selector, Refused: map[key.Name]bool{},
		Now: time.Now(), Overlap: e.c.Overlap, Linger: e.c.Overlap / lingerPart,
	}
	existing := map[key.Name]*corev1.Service{}
	for _, f := range e.fronts {
		in.Wanted = append(in.Wanted, *f)
		for _, at := range []key.Name{
			{Namespace: e.c.Namespace, Name: front.SharedName(f.Gateway, f.Class)},
			{Namespace: f.Gateway.Namespace, Name: front.OwnName(f.Gateway, f.Class)},
		} {
			if s := e.seen[at]; s != nil {
				existing[at] = s
			}
		}
	}
	for at, s := range e.seen {
		if managed(s) {
			existing[at] = s
		}
	}
	for _, s := range existing {
		in.Existing = append(in.Existing, s)
	}
	serving := map[key.Name]bool{}
	for of, slices := range e.ready {
		for _, is := range slices {
			serving[of] = serving[of] || is
		}
	}
	in.Ready = func(of key.Name) bool { return serving[of] }
	return in, e.complete
}

// applyServices makes what is planned; what the API refuses for good is added to lacks.
func (e *Engine) applyServices(ctx context.Context, p Plan, lacks map[key.Name]condition.Problem) (errs []error) {
	for _, s := range p.Apply {
		at := key.Name{Namespace: *s.Namespace, Name: *s.Name}
		made, err := e.services.Services(at.Namespace).Apply(ctx, s, metav1.ApplyOptions{FieldManager: front.FieldManager, Force: true})
		if err != nil {
			err = fmt.Errorf("apply Service %s: %w", at, err)
			errs = append(errs, err)
			if gw, is := gatewayOf(s.Annotations); is && final(err) {
				lacks[gw] = lack(err)
			}
			continue
		}
		if made, err = e.takePortsOff(ctx, made, s); err != nil {
			errs = append(errs, err)
		}
		e.mu.Lock()
		e.seen[at] = made // its ports are taken from now on, not from when it is observed
		e.mu.Unlock()
		e.c.Log.Info("Service applied", logkey.Object, at.String())
	}
	return errs
}

// takePortsOff removes from a Service of ours, as it was just applied, the ports that others put
// there, which applying leaves, and returns it as it is then.
func (e *Engine) takePortsOff(ctx context.Context, made *corev1.Service, want *coreac.ServiceApplyConfiguration) (*corev1.Service, error) {
	patch := withoutOthersPorts(made, want)
	if patch == nil {
		return made, nil
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return made, err
	}
	now, err := e.services.Services(made.Namespace).Patch(ctx, made.Name, types.JSONPatchType, text, metav1.PatchOptions{FieldManager: front.FieldManager})
	if err != nil {
		return made, fmt.Errorf("take ports off Service %s/%s: %w", made.Namespace, made.Name, err)
	}
	e.c.Log.Info("ports taken off that are not ours", logkey.Object, made.Namespace+"/"+made.Name, logkey.Count, len(patch)-1)
	return now, nil
}

func (e *Engine) deleteServices(ctx context.Context, p Plan) (errs []error) {
	for _, s := range p.Delete {
		at := key.Name{Namespace: s.Namespace, Name: s.Name}
		err := e.services.Services(at.Namespace).Delete(ctx, at.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete Service %s: %w", at, err))
			continue
		}
		e.c.Log.Info("Service deleted", logkey.Object, at.String())
	}
	return errs
}

// gatewayOf reads whose an object is.
func gatewayOf(annotations map[string]string) (key.Name, bool) {
	return key.ParseName(annotations[front.OfAnnotation])
}

// final reports whether the API refuses something that no repetition alone will mend.
func final(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsNotFound(err)
}

func lack(err error) condition.Problem {
	return condition.Problemf(gatewayv1.GatewayReasonNoResources, "%v", err)
}
