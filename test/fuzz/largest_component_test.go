//go:build component

package fuzz_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/test/admit"
	"aether.io/aether/internal/test/instance"
)

// largest are objects that are as large as their definitions, and an API server's limit of
// about 1.5 MB, let them be.
func largest(port int) map[string][]map[string]any {
	repeat := func(n int, item func(i int) any) (list []any) {
		for i := range n {
			list = append(list, item(i))
		}
		return list
	}
	gateway := func(listeners []any) map[string]any {
		return core("gateway.networking.k8s.io/v1", "Gateway", "default", "a", map[string]any{"spec": map[string]any{"gatewayClassName": "ours", "listeners": listeners}})
	}
	one := gateway([]any{map[string]any{"name": "http", "port": port, "protocol": "HTTP"}})
	route := func(spec map[string]any) map[string]any {
		spec["parentRefs"] = []any{map[string]any{"name": "a"}}
		return core("gateway.networking.k8s.io/v1", "HTTPRoute", "default", "r", map[string]any{"spec": spec})
	}
	backends := repeat(16, func(i int) any {
		return map[string]any{"name": fmt.Sprint("s", i%3), "port": 80, "weight": 1000000, "filters": []any{
			map[string]any{"type": "RequestHeaderModifier", "requestHeaderModifier": map[string]any{"set": repeat(16, func(i int) any { return map[string]any{"name": fmt.Sprint("h", i), "value": strings.Repeat("v", 256)} })}},
		}}
	})
	longHost := func(i int) any {
		return fmt.Sprintf("h%d.", i) + strings.Repeat(strings.Repeat("a", 61)+".", 3) + "com"
	}
	return map[string][]map[string]any{
		"64 listeners with 64 certificates each": {gateway(repeat(64, func(i int) any {
			return map[string]any{"name": fmt.Sprint("l", i), "port": port, "protocol": "HTTPS", "hostname": longHost(i), "tls": map[string]any{"certificateRefs": repeat(64, func(int) any { return map[string]any{"name": "cert"} })}}
		}))},
		"128 matches of 16 headers and 16 parameters at 4 hosts": {one, route(map[string]any{"hostnames": repeat(4, longHost), "rules": repeat(16, func(i int) any {
			return map[string]any{"backendRefs": backends[:1], "matches": repeat(8, func(j int) any {
				return map[string]any{
					"path":        map[string]any{"value": fmt.Sprintf("/%d/%d/", i, j) + strings.Repeat("p", 1000)},
					"headers":     repeat(16, func(k int) any { return map[string]any{"name": fmt.Sprint("h", k), "value": strings.Repeat("v", 250)} }),
					"queryParams": repeat(16, func(k int) any { return map[string]any{"name": fmt.Sprint("q", k), "value": strings.Repeat("v", 250)} }),
				}
			})}
		})})},
		"16 rules of 16 backends that change headers": {one, route(map[string]any{"rules": repeat(16, func(int) any { return map[string]any{"backendRefs": backends} })})},
		"128 regular expressions": {one, route(map[string]any{"rules": repeat(16, func(i int) any {
			return map[string]any{"backendRefs": backends[:1], "matches": repeat(8, func(j int) any {
				return map[string]any{
					"path": map[string]any{"type": "RegularExpression", "value": fmt.Sprintf("/%d/%d(a?){100}[^/]+", i, j)},
					"headers": repeat(16, func(k int) any {
						return map[string]any{"name": fmt.Sprint("h", k), "type": "RegularExpression", "value": "(a|b)*c{20}.*"}
					}),
				}
			})}
		})})},
		"16 mirrors and 64 origins": {one, route(map[string]any{"rules": repeat(16, func(int) any {
			return map[string]any{"backendRefs": backends[:3], "filters": append(repeat(15, func(i int) any {
				return map[string]any{"type": "RequestMirror", "requestMirror": map[string]any{"backendRef": map[string]any{"name": fmt.Sprint("s", i%3), "port": 80}, "fraction": map[string]any{"numerator": i, "denominator": 2147483647}}}
			}), map[string]any{"type": "CORS", "cors": map[string]any{
				"allowOrigins": repeat(64, func(i int) any { return fmt.Sprintf("https://*.h%d.", i) + strings.Repeat("a", 60) + ".example:65535" }),
				"allowHeaders": repeat(64, func(i int) any { return fmt.Sprint("h", i) }), "exposeHeaders": repeat(64, func(i int) any { return fmt.Sprint("h", i) }), "maxAge": 2147483647,
			}})}
		})})},
	}
}

func TestEnvoyTakesTheLargestObjects(t *testing.T) {
	server, err := admit.New()
	if err != nil {
		t.Fatal(err)
	}
	base, err := instance.FreeOffset(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, server, base)
	for name, list := range largest(base + 1) {
		for _, scopes := range []string{"Single", "PerHost"} {
			if scopes == "PerHost" && !strings.Contains(name, "hosts") {
				continue
			}
			t.Run(name+", "+scopes, func(t *testing.T) {
				g := newGenerator(t, server, nil)
				g.rest = newRand(1)
				var objects []object.Object
				for _, raw := range append(g.fixed(), list...) {
					if raw["kind"] == "GatewayParameters" {
						raw["spec"] = map[string]any{"routeScopes": scopes}
					}
					text, err := json.Marshal(raw)
					if err != nil {
						t.Fatal(err)
					}
					o, err := server.JSON(t.Context(), text)
					if err != nil {
						t.Fatalf("%v in %.2000s", err, text)
					}
					objects = append(objects, o)
				}
				if err := r.try(objects); err != nil {
					t.Error(err)
				}
				for k, status := range compile(objects).statuses {
					data, err := json.Marshal(status.Value)
					if err != nil {
						t.Fatal(err)
					}
					// That nothing conflicts is good, and the Services have no endpoint that is ready.
					text := string(data)
					good := strings.Count(text, `"NoConflicts"`) + strings.Count(text, `"NoEndpoints"`)
					if strings.Count(text, `"status":"False"`) > good || strings.Contains(text, "PartiallyInvalid") {
						t.Errorf("%s: %.3000s", k, text)
					}
				}
			})
		}
	}
}
