package analyze

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/hostname"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/rule"
)

// shadow is a match that gets no request because of an equal one that is tried first.
type shadow struct{ match, by string } // their names: namespace/name/rule/index

// mostHosts bounds the hosts that a finding names.
const mostHosts = 8

// shadows tells of matches that are equal to one that is tried before them at the same host.
// Which are tried where, and in what order, is read off the routes that the graph made. One
// that only comes after a route which names the host more precisely is as it is meant to be,
// and so is one that gets requests for the host at another listener.
func (a *analysis) shadows() {
	matches := a.matches()
	found := map[shadow]map[string]bool{} // by host
	free := map[string]map[string]bool{}  // hosts for which a match gets requests, by its name
	for _, r := range a.tables {
		var s routev3.ScopedRouteConfiguration
		if err := proto.Unmarshal(r.Payload, &s); err != nil {
			continue // it was made by this process
		}
		for _, v := range s.GetRouteConfiguration().GetVirtualHosts() {
			host := v.GetDomains()[0]
			shadows, first := shadowed(v, matches)
			for _, one := range shadows {
				note(found, one, host)
			}
			for _, name := range first {
				note(free, name, host)
			}
		}
	}
	maps.DeleteFunc(found, func(one shadow, at map[string]bool) bool {
		maps.DeleteFunc(at, func(host string, _ bool) bool { return free[one.match][host] })
		return len(at) == 0
	})
	for _, one := range slices.SortedFunc(maps.Keys(found), func(x, y shadow) int {
		return cmp.Or(strings.Compare(x.match, y.match), strings.Compare(x.by, y.by))
	}) {
		a.tellShadow(matches[one.match], matches[one.by], found[one])
	}
}

func note[K comparable](in map[K]map[string]bool, k K, host string) {
	if in[k] == nil {
		in[k] = map[string]bool{}
	}
	in[k][host] = true
}

func (a *analysis) tellShadow(m, by rule.Match, at map[string]bool) {
	hosts := slices.Sorted(maps.Keys(at))
	if more := len(hosts) - mostHosts; more > 0 {
		hosts = append(hosts[:mostHosts], fmt.Sprintf("%d more", more))
	}
	why := "which is in front of it in the same route"
	switch {
	case by.From == m.From:
	case by.Created != m.Created:
		why = "which is older"
	case a.c.Live:
		why = "which is as old, and first by namespace and name"
	default:
		why = "which is first by name; of those that are applied the older one would be"
	}
	a.say(m.From.Object(object.HTTPRoute), code.Shadowed, matchPath(m), "gets no request for %s: %s of HTTPRoute/%s matches the same, %s",
		strings.Join(hosts, ", "), matchPath(by), by.From, why)
}

// matchPath is the path of a match. A rule that has none was given one when it was read.
func matchPath(m rule.Match) string {
	return fmt.Sprintf("spec.rules[%d].matches[%d]", m.Rule, m.Index)
}

// matches is every match of the routes, by its name.
func (a *analysis) matches() map[string]rule.Match {
	good := func(*gatewayv1.BackendRef) (key.Service, condition.Problem) {
		return key.Service{}, condition.Problem{}
	}
	out := map[string]rule.Match{}
	for _, o := range a.objects {
		if r, is := o.(*gatewayv1.HTTPRoute); is {
			for _, m := range rule.Compile(r, good).Matches {
				out[m.Name] = m
			}
		}
	}
	return out
}

// shadowed is the matches of a virtual host that equal an earlier one of it, and the names of
// those that do not.
func shadowed(v *routev3.VirtualHost, matches map[string]rule.Match) (out []shadow, free []string) {
	first, seen := map[string]string{}, map[string]bool{}
	for _, r := range v.GetRoutes() {
		// A match may be several routes, whose names begin with its own.
		name := r.GetName()
		if part := strings.SplitN(name, "/", 5); len(part) > 4 {
			name = strings.Join(part[:4], "/")
		}
		m, is := matches[name]
		if !is || seen[name] {
			continue
		}
		seen[name] = true
		by, taken := first[asked(m)]
		if !taken {
			first[asked(m)], free = name, append(free, name)
			continue
		}
		host := v.GetDomains()[0]
		if hostname.ComparePrecedence(hostname.Own(matches[by].Hostnames, host), hostname.Own(m.Hostnames, host)) == 0 {
			out = append(out, shadow{name, by})
		}
	}
	return out, free
}

// asked is what a match asks of a request, the same for all that ask the same.
func asked(m rule.Match) string {
	path := m.Path
	if path.Kind == envoy.PathPrefix { // a slash at its end does not matter
		path.Value = strings.TrimRight(path.Value, "/")
	}
	headers, query := slices.Clone(m.Headers), slices.Clone(m.Query)
	slices.SortFunc(headers, func(x, y envoy.HeaderMatch) int { return strings.Compare(x.Name, y.Name) })
	slices.SortFunc(query, func(x, y envoy.QueryMatch) int { return strings.Compare(x.Name, y.Name) })
	return fmt.Sprintf("%d %q %q %#v %#v", path.Kind, path.Value, m.Method, headers, query)
}
