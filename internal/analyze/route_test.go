package analyze_test

import (
	"slices"
	"strings"
	"testing"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
)

const gatewayOfOne = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners:
  - {name: http, protocol: HTTP, port: 80}
`

func TestAParentThatIsNotThereIsAnErrorOnlyIfAllIsThere(t *testing.T) {
	const route = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: nowhere}]
`
	for name, c := range map[string]struct {
		config analyze.Config
		want   []code.Severity
	}{
		"of a part of what there is": {config(code.Anywhere), nil},
		"of all that there is":       {config(code.Complete), []code.Severity{code.Error}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []code.Severity
			for _, f := range run(t, c.config, gatewayOfOne+"---\n"+route) {
				if f.Code == code.Nowhere {
					got = append(got, f.Severity)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("severities %v, want %v", got, c.want)
			}
		})
	}
}

// Requests reach no listener of such a Gateway, and so none that is more specific.
func TestOfAGatewayThatIsNotServedNoListenerIsMoreSpecific(t *testing.T) {
	list := run(t, config(code.Complete), strings.Replace(gatewayOfOne, "coxswain\n  listeners", `coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: nowhere}}
  listeners`, 1)+`---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [shop.example.com]
`)
	if got := codes(list); slices.Contains(got, code.Isolated) || !slices.Contains(got, "AET1101") {
		t.Errorf("found %v", list)
	}
}
