// Package rule compiles the rules of an HTTPRoute into routes of Envoy's model, and
// orders the matches of many. It finds no object itself: backends are resolved by a
// function that its caller gives. What it cannot serve it names.
package rule

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// Set is an HTTPRoute's rules, whoever its parents are.
type Set struct {
	Matches  []Match // in the order of rules and matches
	Backends []key.Service
	Refs     condition.Problem // the first reference that is not good
	Invalid  []string          // what cannot be served, one text a rule
	rules    int
}

// Rejected reports whether no rule can be served.
func (s Set) Rejected() bool { return s.rules > 0 && len(s.Invalid) == s.rules }

// Complaint names the rules that cannot be served, and why.
func (s Set) Complaint() string { return strings.Join(s.Invalid, ", ") }

// Resolver finds the Service's port that a backendRef means, or says why it is no backend.
type Resolver func(*gatewayv1.BackendRef) (key.Service, condition.Problem)

// Compile reads a route's rules. A rule that cannot be served keeps its place and
// answers 500: dropped, its requests would go to a rule that was not meant for them.
func Compile(r *gatewayv1.HTTPRoute, resolve Resolver) Set {
	from := key.Name{Namespace: r.Namespace, Name: r.Name}
	set := Set{rules: len(r.Spec.Rules)}
	var hostnames []string
	for _, h := range r.Spec.Hostnames {
		hostnames = append(hostnames, strings.ToLower(string(h)))
	}
	for i := range r.Spec.Rules {
		rule := &r.Spec.Rules[i]
		backends, keys, bad := compileBackends(rule, resolve)
		if set.Refs.IsZero() {
			set.Refs = bad
		}
		matches, invalid := compileMatches(rule, fmt.Sprintf("%s/%d", from, i))
		if why := unsupported(rule); why != "" {
			invalid = why
		}
		if invalid != "" {
			set.Invalid = append(set.Invalid, fmt.Sprintf("%d (%s)", i, invalid))
			backends = nil
		} else {
			set.Backends = append(set.Backends, keys...)
		}
		for _, m := range matches {
			m.Backends = backends
			m.Created, m.From, m.Hostnames, m.Rule = r.CreationTimestamp.Unix(), from, hostnames, i
			set.Matches = append(set.Matches, m)
		}
	}
	return set
}

// unsupported names the first thing a rule asks for that is not built yet.
func unsupported(r *gatewayv1.HTTPRouteRule) string {
	switch {
	case len(r.Filters) > 0:
		return "filters are not supported"
	case r.Timeouts != nil:
		return "timeouts are not supported"
	case r.Retry != nil:
		return "retry is not supported"
	case r.SessionPersistence != nil:
		return "sessionPersistence is not supported"
	case slices.ContainsFunc(r.BackendRefs, func(b gatewayv1.HTTPBackendRef) bool { return len(b.Filters) > 0 }):
		return "filters of backendRefs are not supported"
	}
	return ""
}

// compileBackends resolves a rule's backendRefs. One that is not good keeps its share,
// which is answered with 500; one of weight 0 stays, so that raising it needs no new cluster.
func compileBackends(r *gatewayv1.HTTPRouteRule, resolve Resolver) (list []envoy.WeightedBackend, keys []key.Service, bad condition.Problem) {
	for i := range r.BackendRefs {
		ref := &r.BackendRefs[i].BackendRef
		b := envoy.WeightedBackend{Weight: 1}
		if ref.Weight != nil {
			b.Weight = uint32(max(*ref.Weight, 0))
		}
		k, why := resolve(ref)
		if why.IsZero() {
			b.Cluster = k.Cluster()
			keys = append(keys, k)
		} else if bad.IsZero() {
			bad = why
		}
		list = append(list, b)
	}
	return list, keys, bad
}
