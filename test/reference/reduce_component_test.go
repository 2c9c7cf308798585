//go:build component

package reference_test

import (
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/test/reference"
)

// reduce takes out of a set what the difference does not need, and leaves Envoy running
// what is left. It ends: each round that goes on has taken something out.
func (r *rig) reduce(objects []object.Object, q reference.Request) []object.Object {
	r.run(objects)
	for again := *shrink; again; {
		again = false
		for i := 0; i < len(objects); i++ {
			for _, smaller := range r.without(objects[i]) {
				try := slices.Clone(objects)
				if smaller == nil {
					try = slices.Delete(try, i, i+1)
				} else {
					try[i] = smaller
				}
				r.client.close()
				r.run(try)
				if r.differs(try, q) != "" {
					objects, again = try, true
					i--
					break
				}
			}
		}
	}
	r.client.close()
	r.run(objects)
	return objects
}

// without returns nothing (nil), and the object with one part less, for each part.
func (r *rig) without(o object.Object) []object.Object {
	out := []object.Object{nil}
	switch o := o.(type) {
	case *gatewayv1.Gateway:
		for i := range o.Spec.Listeners {
			if c := o.DeepCopy(); len(o.Spec.Listeners) > 1 {
				c.Spec.Listeners = slices.Delete(c.Spec.Listeners, i, i+1)
				out = append(out, c)
			}
		}
	case *gatewayv1.HTTPRoute:
		for i := range o.Spec.ParentRefs {
			c := o.DeepCopy()
			c.Spec.ParentRefs = slices.Delete(c.Spec.ParentRefs, i, i+1)
			out = append(out, c)
		}
		for i := range o.Spec.Hostnames {
			c := o.DeepCopy()
			c.Spec.Hostnames = slices.Delete(c.Spec.Hostnames, i, i+1)
			out = append(out, c)
		}
		for i := range o.Spec.Rules {
			if c := o.DeepCopy(); len(o.Spec.Rules) > 1 {
				c.Spec.Rules = slices.Delete(c.Spec.Rules, i, i+1)
				out = append(out, c)
			}
			out = append(out, withoutInRule(o, i)...)
		}
	}
	return out
}

func withoutInRule(o *gatewayv1.HTTPRoute, i int) (out []object.Object) {
	add := func(change func(*gatewayv1.HTTPRouteRule)) {
		c := o.DeepCopy()
		change(&c.Spec.Rules[i])
		out = append(out, c)
	}
	for j, m := range o.Spec.Rules[i].Matches {
		if len(o.Spec.Rules[i].Matches) > 1 {
			add(func(r *gatewayv1.HTTPRouteRule) { r.Matches = slices.Delete(r.Matches, j, j+1) })
		}
		if m.Method != nil {
			add(func(r *gatewayv1.HTTPRouteRule) { r.Matches[j].Method = nil })
		}
		for k := range m.Headers {
			add(func(r *gatewayv1.HTTPRouteRule) { r.Matches[j].Headers = slices.Delete(r.Matches[j].Headers, k, k+1) })
		}
		for k := range m.QueryParams {
			add(func(r *gatewayv1.HTTPRouteRule) {
				r.Matches[j].QueryParams = slices.Delete(r.Matches[j].QueryParams, k, k+1)
			})
		}
	}
	for j := range o.Spec.Rules[i].BackendRefs {
		add(func(r *gatewayv1.HTTPRouteRule) { r.BackendRefs = slices.Delete(r.BackendRefs, j, j+1) })
	}
	return out
}
