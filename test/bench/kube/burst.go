package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/test/bench/rig"
)

const (
	burst   = "burst"   // the Gateway that routes are attached to at once
	foreign = "foreign" // one of another controller, and its class
	theirs  = 50        // routes of its
)

// Burst is what came of many routes that were created at once.
type Burst struct {
	Creating      time.Duration // all of them
	Right         time.Duration // from the last creation until the Gateway says how many are attached
	Settled       time.Duration // from the last creation until every status is written
	GatewayWrites int           // of the Gateway's status by the controller
	RouteWrites   int           // of the routes'
	Conflicts     int           // writes of either that another was ahead of
	Foreign       int           // writes by the controller to what another controller writes
}

// CreateAtOnce creates so many routes of a new Gateway, several at a time, and counts from
// the audit log what the controller wrote.
func CreateAtOnce(ctx context.Context, r *rig.Rig, routes int) (b Burst, err error) {
	if r.AuditLog == "" {
		return b, fmt.Errorf("writes are counted from the API server's audit log, whose place is not known")
	}
	class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: foreign}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/controller"}}
	if err := r.API.Create(ctx, class); err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, r.API.Delete(context.WithoutCancel(ctx), class)) }() // it is in no namespace
	if err := others(ctx, r, class); err != nil {
		return b, err
	}
	if err := r.API.Create(ctx, &gatewayv1.Gateway{ObjectMeta: meta(burst), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "coxswain", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
	}}); err != nil {
		return b, err
	}
	if _, err := r.Reach(ctx, burst); err != nil {
		return b, err
	}
	if err := r.Settled(ctx, burst, 0); err != nil {
		return b, err
	}
	from, err := size(r.AuditLog)
	if err != nil {
		return b, err
	}
	w, err := r.API.Watch(ctx, &gatewayv1.Gateway{})
	if err != nil {
		return b, err
	}
	defer w.Stop()
	right := make(chan time.Time, 1)
	go func() { // ends with the watch
		defer close(right)
		for e := range w.ResultChan() {
			if gw, ok := e.Object.(*gatewayv1.Gateway); ok && gw.Name == burst && len(gw.Status.Listeners) == 1 && int(gw.Status.Listeners[0].AttachedRoutes) == routes {
				right <- time.Now()
				return
			}
		}
	}()
	began := time.Now()
	if err := r.API.CreateAll(ctx, routes, func(i int) rig.Object { return routeTo(i, "none", burst) }); err != nil {
		return b, err
	}
	last := time.Now()
	b.Creating = last.Sub(began)
	select {
	case at, ok := <-right:
		if !ok {
			return b, fmt.Errorf("the watch ended before %d routes were attached", routes)
		}
		b.Right = at.Sub(last)
	case <-time.After(patience):
		return b, fmt.Errorf("%d routes are not attached after %s", routes, patience)
	case <-ctx.Done():
		return b, ctx.Err()
	}
	if err := r.Settled(ctx, burst, routes); err != nil {
		return b, err
	}
	b.Settled = time.Since(last)
	err = b.count(r, from)
	return b, err
}

// others makes what another controller serves, and says of it what that would.
func others(ctx context.Context, r *rig.Rig, class *gatewayv1.GatewayClass) error {
	gw := &gatewayv1.Gateway{ObjectMeta: meta(foreign), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: foreign, Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
	}}
	if err := r.API.Create(ctx, gw); err != nil {
		return err
	}
	for i := range theirs {
		o := routeTo(i, "none", foreign)
		if err := r.API.Create(ctx, o); err != nil {
			return err
		}
		if err := r.API.Get(ctx, o.Namespace, o.Name, o); err != nil {
			return err
		}
		o.Status.Parents = []gatewayv1.RouteParentStatus{{
			ControllerName: class.Spec.ControllerName, ParentRef: o.Spec.ParentRefs[0],
			Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: metav1.Now()}},
		}}
		if err := r.API.PutStatus(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (b *Burst) count(r *rig.Rig, from int64) error {
	writes, err := writesSince(r.AuditLog, from)
	if err != nil {
		return err
	}
	for _, w := range writes {
		if w.User.Username != r.User || w.Object.Subresource != "status" {
			continue
		}
		switch {
		case w.Object.Name == foreign, strings.HasPrefix(w.Object.Name, foreign+"-"):
			b.Foreign++
		case w.Response.Code == 409:
			b.Conflicts++
		case w.Object.Resource == "gateways" && w.Object.Name == burst:
			b.GatewayWrites++
		case w.Object.Resource == "httproutes":
			b.RouteWrites++
		}
	}
	return nil
}

// AtOnce measures that and tells of it.
func AtOnce(ctx context.Context, r *rig.Rig, out io.Writer, routes int) error {
	b, err := CreateAtOnce(ctx, r, routes)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d routes created at once, in %s\n", routes, b.Creating.Round(time.Millisecond))
	fmt.Fprintf(out, "  attachedRoutes right after the last one   %s\n", b.Right.Round(time.Millisecond))
	fmt.Fprintf(out, "  every status written                      %s\n", b.Settled.Round(time.Millisecond))
	fmt.Fprintf(out, "  status writes: Gateway %d, routes %d, conflicts %d, foreign %d\n", b.GatewayWrites, b.RouteWrites, b.Conflicts, b.Foreign)
	return nil
}
