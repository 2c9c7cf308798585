package configv1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
)

func params(t *testing.T, spec string) *configv1.GatewayParametersSpec {
	t.Helper()
	if spec == "" {
		return nil
	}
	out := &configv1.GatewayParametersSpec{}
	if err := yaml.UnmarshalStrict([]byte(spec), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEffectiveGatewayParameters(t *testing.T) {
	const defaults = `
mode: Shared
service: {type: LoadBalancer, externalTrafficPolicy: Cluster, loadBalancerClass: ""}
dedicated: {replicas: 2, podTemplate: {}}
clients: {trustedHops: 0, proxyProtocol: {mode: "Off"}, connectionLimit: 0, tls: {minVersion: "1.2"}}
drainSeconds: 600
routeScopes: Auto
`
	for name, tc := range map[string]struct{ class, gateway, want string }{
		"without either every field has its default": {"", "", "{}"},
		"a field that the Gateway leaves unset is the GatewayClass's": {
			"{mode: Dedicated, drainSeconds: 30, service: {type: ClusterIP}}",
			"{routeScopes: PerHost, service: {annotations: {a: b}}}",
			"{mode: Dedicated, drainSeconds: 30, routeScopes: PerHost, service: {type: ClusterIP, annotations: {a: b}}}",
		},
		"the Gateway wins, an explicit zero too": {
			"{drainSeconds: 30, clients: {trustedHops: 2, proxyProtocol: {mode: Accept, trustedCIDRs: [10.0.0.0/8]}}}",
			`{drainSeconds: 0, clients: {trustedHops: 0, proxyProtocol: {mode: "Off"}}}`,
			`{drainSeconds: 0, clients: {trustedHops: 0, proxyProtocol: {mode: "Off", trustedCIDRs: [10.0.0.0/8]}}}`,
		},
		"a map is taken whole, an empty one too": {
			"{service: {annotations: {a: b}}, dedicated: {podTemplate: {labels: {a: b}}}}",
			"{service: {annotations: {c: d}}, dedicated: {podTemplate: {labels: {}}}}",
			"{service: {annotations: {c: d}}, dedicated: {podTemplate: {labels: {}}}}",
		},
		"the Gateway's replicas replace the GatewayClass's autoscaling": {
			"{dedicated: {autoscaling: {maxReplicas: 5}}}", "{dedicated: {replicas: 1}}", "{dedicated: {replicas: 1}}",
		},
		"the Gateway's autoscaling replaces the GatewayClass's replicas": {
			"{dedicated: {replicas: 3}}", "{dedicated: {autoscaling: {}}}",
			"{dedicated: {replicas: null, autoscaling: {minReplicas: 2, maxReplicas: 10, targetCPUUtilizationPercentage: 70}}}",
		},
		"autoscaling merges by field": {
			"{dedicated: {autoscaling: {minReplicas: 3, maxReplicas: 5}}}", "{dedicated: {autoscaling: {maxReplicas: 7}}}",
			"{dedicated: {replicas: null, autoscaling: {minReplicas: 3, maxReplicas: 7, targetCPUUtilizationPercentage: 70}}}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := params(t, defaults)
			if err := yaml.UnmarshalStrict([]byte(tc.want), want); err != nil { // over the defaults
				t.Fatal(err)
			}
			got := configv1.EffectiveGatewayParameters(params(t, tc.class), params(t, tc.gateway))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestEffectiveGatewayParametersSharesNothing(t *testing.T) {
	class := params(t, "{service: {annotations: {a: b}}, clients: {proxyProtocol: {trustedCIDRs: [10.0.0.0/8]}}}")
	got := configv1.EffectiveGatewayParameters(class, nil)
	got.Service.Annotations["a"] = "changed"
	got.Clients.ProxyProtocol.TrustedCIDRs[0] = "changed"
	if class.Service.Annotations["a"] != "b" || class.Clients.ProxyProtocol.TrustedCIDRs[0] != "10.0.0.0/8" {
		t.Error("changing the result changed the argument")
	}
}
