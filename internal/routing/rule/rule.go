// Package rule compiles the rules of an HTTPRoute into routes of Envoy's model, and
// orders the matches of many. It finds no object itself: backends are resolved by a
// function that its caller gives. What it cannot serve it names.
package rule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

// Set is an HTTPRoute's rules, whoever its parents are.
type Set struct {
	Matches  []Match // in the order of rules and matches
	Backends []key.Service
	Asked    []key.Service       // those of Backends that are sent something: their weight is not 0
	Refs     condition.Problem   // the references that are not good; the reason is the first's
	Idle     []string            // the rules that are served and of whose backends all have weight 0
	Invalid  []condition.Problem // what cannot be served, one a rule
	rules    int
	answered bool // some match of a rule that cannot be served answers 500
	unread   bool // some match is not understood, and left out
}

// Rejected reports whether no rule can be served.
func (s Set) Rejected() bool { return s.rules > 0 && len(s.Invalid) == s.rules }

// Complaint names the rules that cannot be served, why, and what comes of it; the reason is
// that of the first. It is zero if there are none.
func (s Set) Complaint() condition.Problem {
	if len(s.Invalid) == 0 {
		return condition.Problem{}
	}
	var list []string
	for _, p := range s.Invalid {
		list = append(list, p.Message)
	}
	return condition.Problem{Reason: s.Invalid[0].Reason, Message: strings.Join(list, ", ") + ": " + s.consequence()}
}

// consequence is what becomes of the requests that rules which cannot be served are about.
func (s Set) consequence() string {
	const match = "requests that match get 500"
	const unread = "what is not understood matches nothing, its requests go where the next match sends them, or get 404"
	switch {
	case !s.unread:
		return match
	case !s.answered:
		return unread
	}
	return match + "; " + unread
}

// Resolver finds the Service's port that a backendRef means, or says why it is no backend.
type Resolver func(*gatewayv1.BackendRef) (key.Service, condition.Problem)

// Compile reads a route's rules. A rule that cannot be served keeps its place and
// answers 500: dropped, its requests would go to a rule that was not meant for them. Only
// of a match that is not understood nobody can say which requests those are.
func Compile(r *gatewayv1.HTTPRoute, resolve Resolver) Set {
	from := key.Name{Namespace: r.Namespace, Name: r.Name}
	set := Set{rules: len(r.Spec.Rules)}
	var hostnames []string
	var bad []condition.Problem
	for _, h := range r.Spec.Hostnames {
		hostnames = append(hostnames, strings.ToLower(string(h)))
	}
	for i, name := range names(r.Spec.Rules) {
		refs := &references{resolve: resolve}
		matches, invalid := compileRule(&r.Spec.Rules[i], fmt.Sprintf("%s/%s", from, name), refs)
		bad = append(bad, refs.bad...)
		if !invalid.IsZero() {
			invalid.Message = fmt.Sprintf("%s (%s)", name, invalid.Message)
			set.Invalid = append(set.Invalid, invalid)
		} else {
			set.Backends = append(set.Backends, refs.good...)
			set.Asked = append(set.Asked, refs.asked...)
			if weightless(r.Spec.Rules[i].BackendRefs) {
				set.Idle = append(set.Idle, name)
			}
		}
		if !invalid.IsZero() {
			set.answered = set.answered || len(matches) > 0
			set.unread = set.unread || len(matches) < max(len(r.Spec.Rules[i].Matches), 1)
		}
		for _, m := range matches {
			m.Created, m.From, m.Hostnames, m.Rule = r.CreationTimestamp.Unix(), from, hostnames, i
			m.Footprint = m.Route.Footprint()
			set.Matches = append(set.Matches, m)
		}
	}
	set.Refs = condition.Several(bad)
	return set
}

// weightless reports whether there are backends to which nothing is sent.
func weightless(list []gatewayv1.HTTPBackendRef) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(b gatewayv1.HTTPBackendRef) bool { return ptr.Deref(b.Weight, 1) > 0 })
}

// names is how people find rules in logs and statuses: by their names, or their numbers.
// A name that is another rule's too, or that could be a number, does not count.
func names(rules []gatewayv1.HTTPRouteRule) []string {
	list, seen := make([]string, len(rules)), map[string]bool{}
	for i, r := range rules {
		list[i] = strconv.Itoa(i)
		if n := string(ptr.Deref(r.Name, "")); strings.Trim(n, "0123456789") != "" && !seen[n] {
			list[i], seen[n] = n, true
		}
	}
	return list
}

// compileRule reads one rule: its matches with what is done with them, which is a 500 if
// the rest cannot be had.
func compileRule(r *gatewayv1.HTTPRouteRule, name string, refs *references) ([]Match, condition.Problem) {
	matches, invalid := compileMatches(r, name)
	target, why := compileTarget(r, refs)
	if invalid.IsZero() {
		invalid = why
	}
	var served []Match
	for _, m := range matches {
		m.Filters, m.Backends, m.Timeout = target.Filters, target.Backends, target.Timeout
		if err := m.Validate(); err != nil && invalid.IsZero() {
			invalid = condition.Problemf(gatewayv1.RouteReasonUnsupportedValue, "%s", strings.TrimPrefix(err.Error(), "route "+m.Name+": "))
		}
		served = append(served, m)
	}
	if invalid.IsZero() {
		return served, invalid
	}
	return matches, invalid // which say nothing of where to go
}
