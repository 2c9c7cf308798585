//go:build component

package standalone_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// greedy is a route that the definitions admit and that would take over a gigabyte of Envoy: 16
// hosts, 128 regular expressions.
func greedy(name, backend string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s}\nspec:\n  parentRefs: [{name: web}]\n  hostnames:\n", name)
	for i := range 16 {
		fmt.Fprintf(&b, "  - h%d.%s.example.com\n", i, name)
	}
	b.WriteString("  rules:\n")
	for i := range 16 {
		fmt.Fprintf(&b, "  - backendRefs: [{name: %s, port: 80}]\n    matches:\n", backend)
		for j := range 8 {
			fmt.Fprintf(&b, "    - {path: {type: RegularExpression, value: '/%d/%d/%s'}}\n", i, j, strings.Repeat(".{1000}", 4))
		}
	}
	return b.String()
}

func TestARouteForWhichSharedProxiesHaveNoRoomTakesNothingFromOthers(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "greedy.yaml": greedy("greedy", "a"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	w.conditionBecomes("httproute/default/greedy.yaml", "Accepted", "False TooMuchForSharedProxies: it would take about ")
	w.answers("h1.greedy.example.com", http.StatusNotFound, "")
	w.write("greedy.yaml", route("greedy", "a"))
	w.answers("greedy.example.com", http.StatusOK, "a")
	w.conditionBecomes("httproute/default/greedy.yaml", "Accepted", "True")
}
