package rule

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/route"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// references is what a rule refers to, and what of it is not good.
type references struct {
	resolve Resolver
	good    []key.Service
	asked   []key.Service // those of good that are sent something: their weight is not 0
	bad     []condition.Problem
}

func (r *references) complain(why condition.Problem) { r.bad = append(r.bad, why) }

// cluster is the name of the cluster of a backendRef, empty if that is no backend.
func (r *references) cluster(ref *gatewayv1.BackendRef) string {
	k, why := r.resolve(ref)
	if !why.IsZero() {
		r.complain(why)
		return ""
	}
	r.good = append(r.good, k)
	if ptr.Deref(ref.Weight, 1) > 0 {
		r.asked = append(r.asked, k)
	}
	return k.Cluster()
}

// compileTarget reads what is done with a rule's requests, whatever they match.
func compileTarget(r *gatewayv1.HTTPRouteRule, refs *references) (t envoy.Route, invalid condition.Problem) {
	if why := unsupported(r); why != "" {
		invalid = condition.Problemf(gatewayv1.RouteReasonUnsupportedValue, "%s", why)
	}
	own, why := compileFilters(r.Filters, refs)
	if invalid.IsZero() {
		invalid = why
	}
	backends, why := compileBackends(r, own, refs)
	if invalid.IsZero() {
		invalid = why
	}
	timeout, why := compileTimeouts(r.Timeouts)
	if invalid.IsZero() {
		invalid = why
	}
	if own.unresolved {
		return envoy.Route{}, invalid
	}
	t = envoy.Route{Filters: own.Filters, Timeout: timeout, Backends: backends}
	if t.Redirect != nil {
		t.Rewrite = route.Rewrite{} // of a Host that was set: the request goes nowhere
	}
	return t, invalid
}

// unsupported names the first thing a rule asks for that is not of the standard channel,
// whose definitions would have dropped it.
func unsupported(r *gatewayv1.HTTPRouteRule) string {
	switch {
	case r.Retry != nil:
		return "retry is not supported"
	case r.SessionPersistence != nil:
		return "sessionPersistence is not supported"
	}
	return ""
}

// compileTimeouts is the time limit of a rule. What reached a backend is not sent again,
// so the limit of one request to a backend is that of the whole, where it is there, and
// tries that reach none count; 0 is none.
func compileTimeouts(t *gatewayv1.HTTPRouteTimeouts) (time.Duration, condition.Problem) {
	if t == nil {
		return 0, condition.Problem{}
	}
	var limit time.Duration
	for _, s := range []*gatewayv1.Duration{t.Request, t.BackendRequest} {
		if s == nil {
			continue
		}
		d, err := time.ParseDuration(string(*s))
		if err != nil {
			return 0, condition.Problemf(gatewayv1.RouteReasonUnsupportedValue, "timeout %q is no duration", *s)
		}
		if d != 0 && (limit == 0 || d < limit) {
			limit = d
		}
	}
	return limit, condition.Problem{}
}

// compileBackends resolves a rule's backendRefs. One that is not good, or has a filter
// that is not known, keeps its share, which is answered with 500; one of weight 0 stays,
// so that raising it needs no new cluster.
func compileBackends(r *gatewayv1.HTTPRouteRule, own filters, refs *references) (list []envoy.WeightedBackend, invalid condition.Problem) {
	for i := range r.BackendRefs {
		ref := &r.BackendRefs[i]
		b := envoy.WeightedBackend{Weight: 1, Cluster: refs.cluster(&ref.BackendRef)}
		if ref.Weight != nil {
			b.Weight = uint32(max(*ref.Weight, 0))
		}
		of, why := compileFilters(ref.Filters, refs)
		if why.IsZero() {
			why = of.over(own).incompatible()
		}
		if !why.IsZero() && invalid.IsZero() {
			why.Message = fmt.Sprintf("backendRef %d: %s", i, why.Message)
			invalid = why
		}
		switch {
		case of.unresolved:
			b.Cluster = ""
		case b.Cluster != "":
			b.Filters = of.Filters
			if b.Redirect != nil {
				b.Rewrite = route.Rewrite{}
			}
		}
		list = append(list, b)
	}
	if own.Redirect != nil && len(list) > 0 && invalid.IsZero() {
		invalid = condition.Problemf(gatewayv1.RouteReasonIncompatibleFilters, "RequestRedirect and backendRefs cannot be combined")
	}
	return list, invalid
}

// over is what a backend's filters and those of its rule are together, as far as they
// may not meet.
func (o filters) over(rule filters) filters {
	both := filters{rewrites: o.rewrites || rule.rewrites}
	both.Redirect = o.Redirect
	both.Mirrors = slices.Concat(rule.Mirrors, o.Mirrors)
	return both
}
