package analyze_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
)

// routeWith is an HTTPRoute of web with rules.
func routeWith(name, hostnames string, rules ...string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s]
  rules: [%s]
`, name, hostnames, strings.Join(rules, ", "))
}

// matching is a rule with matches.
func matching(matches ...string) string {
	return "{matches: [" + strings.Join(matches, ", ") + "], backendRefs: [{name: shop, port: 80}]}"
}

func TestAMatchThatGetsNoRequestIsTold(t *testing.T) {
	const (
		cart = "{path: {value: /cart}}"
		all  = "{backendRefs: [{name: shop, port: 80}]}"
	)
	for name, c := range map[string]struct {
		routes []string
		want   []string // object, path and the message
	}{
		"of two equal ones the second": {
			[]string{routeWith("a", "shop.example.com", matching(cart)), routeWith("b", "shop.example.com", matching("{method: GET}", cart))},
			[]string{"HTTPRoute/default/b spec.rules[0].matches[1] gets no request for shop.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is first by name; of those that are applied the older one would be"},
		},
		"of two that say nothing": {
			[]string{routeWith("b", "shop.example.com", all), routeWith("a", "shop.example.com", all)},
			[]string{"HTTPRoute/default/b spec.rules[0].matches[0] gets no request for shop.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is first by name; of those that are applied the older one would be"},
		},
		"only for the hosts of both": {
			[]string{routeWith("a", "a.example.com, b.example.com", matching(cart)), routeWith("b", "b.example.com, c.example.com", matching(cart))},
			[]string{"HTTPRoute/default/b spec.rules[0].matches[0] gets no request for b.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is first by name; of those that are applied the older one would be"},
		},
		"in one route": {
			[]string{routeWith("a", "a.example.com", matching(cart), matching("{path: {type: PathPrefix, value: /cart/}}"))},
			[]string{"HTTPRoute/default/a spec.rules[1].matches[0] gets no request for a.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is in front of it in the same route"},
		},
		"whatever the order of headers, and what is done": {
			[]string{
				routeWith("a", "a.example.com", matching("{headers: [{name: X-A, value: a}, {name: x-b, value: b}]}")),
				routeWith("b", "a.example.com", "{matches: [{path: {value: /}, headers: [{name: x-b, value: b}, {name: x-a, value: a}]}], filters: [{type: RequestRedirect, requestRedirect: {scheme: https}}]}"),
			},
			[]string{"HTTPRoute/default/b spec.rules[0].matches[0] gets no request for a.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is first by name; of those that are applied the older one would be"},
		},
		"not if they differ in anything": {
			routes: []string{
				routeWith("a", "a.example.com", matching(cart, "{path: {type: Exact, value: /cart}}", "{path: {value: /cart}, method: GET}")),
				routeWith("b", "a.example.com", matching("{path: {value: /cart}, headers: [{name: x, value: a}]}", "{path: {value: /cart}, headers: [{name: x, value: b}]}",
					"{path: {value: /cart}, headers: [{name: x, value: a, type: RegularExpression}]}", "{path: {value: /cart}, queryParams: [{name: x, value: a}]}", "{path: {value: /Cart}}")),
				routeWith("c", "c.example.com", matching(cart)),
			},
		},
		"not if one names the host more precisely": {
			routes: []string{routeWith("a", `"*.example.com"`, matching(cart)), routeWith("b", "shop.example.com", matching(cart))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			gateway := gatewayOfOne
			if strings.Contains(name, "precisely") {
				gateway = strings.Replace(gatewayOfOne, "port: 80}", "port: 80, hostname: shop.example.com}", 1)
			}
			var got []string
			for _, f := range run(t, config(code.Anywhere), gateway+strings.Join(c.routes, "")) {
				if f.Code == code.Shadowed {
					got = append(got, f.Object+" "+f.Path+" "+f.Message)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// What redirects to HTTPS at one listener takes nothing of the same route at another.
func TestAMatchThatGetsRequestsAtAnotherListenerIsNotTold(t *testing.T) {
	const cart = "{path: {value: /cart}}"
	gateway := strings.Replace(gatewayOfOne, "port: 80}", "port: 80}\n  - {name: other, protocol: HTTP, port: 8080}", 1)
	first := strings.Replace(routeWith("a", "shop.example.com", matching(cart)), "{name: web}", "{name: web, sectionName: other}", 1)
	for name, c := range map[string]struct {
		second string
		told   bool
	}{
		"at both":           {routeWith("b", "shop.example.com", matching(cart)), false},
		"at no other":       {strings.Replace(routeWith("b", "shop.example.com", matching(cart)), "{name: web}", "{name: web, sectionName: other}", 1), true},
		"at the port alone": {strings.Replace(routeWith("b", "shop.example.com", matching(cart)), "{name: web}", "{name: web, port: 8080}", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			all := run(t, config(code.Anywhere), gateway+first+c.second)
			told := slices.ContainsFunc(all, func(f analyze.Finding) bool { return f.Code == code.Shadowed })
			if told != c.told {
				t.Errorf("told %t, want %t: %+v", told, c.told, all)
			}
		})
	}
}

// On a cluster it is known which is older.
func TestOfEqualMatchesOnAClusterTheYoungerIsTold(t *testing.T) {
	const cart = "{path: {value: /cart}}"
	for name, c := range map[string]struct {
		old  string
		want string
	}{
		"the first by name is younger": {"b", "HTTPRoute/default/a: gets no request for shop.example.com: spec.rules[0].matches[0] of HTTPRoute/default/b matches the same, which is older"},
		"the first by name is older":   {"a", "HTTPRoute/default/b: gets no request for shop.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is older"},
		"they are as old":              {"", "HTTPRoute/default/b: gets no request for shop.example.com: spec.rules[0].matches[0] of HTTPRoute/default/a matches the same, which is as old, and first by namespace and name"},
	} {
		t.Run(name, func(t *testing.T) {
			documents := read(t, gatewayOfOne+routeWith("a", "shop.example.com", matching(cart))+routeWith("b", "shop.example.com", matching(cart))+served)
			for _, d := range documents {
				if d.Key.Kind == object.HTTPRoute && d.Key.Name != c.old {
					d.Object.SetCreationTimestamp(metav1.Unix(1_800_000_000, 0))
				} else {
					d.Object.SetCreationTimestamp(metav1.Unix(1_700_000_000, 0))
				}
			}
			var got []string
			for _, f := range analyzed(t, config(code.Cluster), documents) {
				if f.Code == code.Shadowed {
					got = append(got, f.Object+": "+f.Message)
				}
			}
			if !slices.Equal(got, []string{c.want}) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), c.want)
			}
		})
	}
}

// served is the Service in front of web.
const served = `---
apiVersion: v1
kind: Service
metadata: {namespace: aether-system, name: default-web-coxswain, labels: {app.kubernetes.io/managed-by: aether-controller}}
spec: {type: ClusterIP, clusterIPs: [192.0.2.1], ports: [{port: 80, targetPort: 10000}]}
`
