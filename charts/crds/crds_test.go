package crds_test

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/charts/crds"
	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/meshconfig"
)

// An API server refuses a definition whose rules are wrong or may cost too much.
func TestDefinitionsAreValid(t *testing.T) {
	names, err := fs.Glob(crds.FS, crds.Dir+"/*.yaml")
	if err != nil || len(names) != 2 {
		t.Fatalf("definitions: %q, %v", names, err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(crds.FS, name)
		if err != nil {
			t.Fatal(err)
		}
		external := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, external); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if external.Annotations["helm.sh/resource-policy"] != "keep" {
			t.Errorf("%s: uninstalling the chart would delete every object", name)
		}
		if strings.Contains(string(data), "{{") {
			t.Errorf("%s: Helm would take a part of it for a template", name)
		}
		apiextensionsv1.SetDefaults_CustomResourceDefinition(external)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&external.Spec)
		external.Status.StoredVersions = []string{"v1"}
		in := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(external, in, nil); err != nil {
			t.Fatal(err)
		}
		for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), in) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

var validator = sync.OnceValues(crd.New)

func admit(t *testing.T, manifest string) (unknown []string, refusal string) {
	t.Helper()
	v, err := validator()
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	unknown, errs := v.Admit(t.Context(), u, nil)
	if err := errs.ToAggregate(); err != nil {
		refusal = err.Error()
	}
	return unknown, refusal
}

func TestGatewayParametersAdmission(t *testing.T) {
	for name, tc := range map[string]struct{ spec, refusal string }{
		"everything set": {`
mode: Shared
service: {type: LoadBalancer, annotations: {}, externalTrafficPolicy: Cluster, loadBalancerClass: ""}
dedicated:
  autoscaling: {minReplicas: 2, maxReplicas: 10, targetCPUUtilizationPercentage: 70}
  podTemplate:
    labels: {team: edge}
    tolerations: [{key: edge, operator: Exists}]
    affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone}]}}
    resources: {requests: {cpu: 100m}}
    env: [{name: HTTP_PROXY, value: none}]
clients: {trustedHops: 0, proxyProtocol: {mode: "Off", trustedCIDRs: [10.0.0.0/8, "fd00::/8"]}, connectionLimit: 0, tls: {minVersion: "1.2"}}
drainSeconds: 600
routeScopes: Auto`, ""},
		"nothing set":                     {"{}", ""},
		"an unknown mode":                 {"mode: Both", "spec.mode"},
		"replicas and autoscaling":        {"dedicated: {replicas: 2, autoscaling: {}}", "exclude each other"},
		"min over max":                    {"dedicated: {autoscaling: {minReplicas: 3, maxReplicas: 2}}", "must not exceed"},
		"a class without a load balancer": {"service: {type: ClusterIP, loadBalancerClass: x}", "needs type LoadBalancer"},
		"a label of ours":                 {"dedicated: {podTemplate: {labels: {app.kubernetes.io/name: x}}}", "are Aether's"},
		"an environment variable of ours": {"dedicated: {podTemplate: {env: [{name: COXSWAIN_DISCOVERY_PORT}]}}", "reserved"},
		"a preloaded library":             {"dedicated: {podTemplate: {env: [{name: LD_PRELOAD, value: /x}]}}", "reserved"},
		"an environment variable twice":   {"dedicated: {podTemplate: {env: [{name: A}, {name: A}]}}", "Duplicate"},
		"what is no CIDR":                 {"clients: {proxyProtocol: {trustedCIDRs: [10.0.0.1]}}", "trustedCIDRs"},
		"an Off that YAML calls false":    {"clients: {proxyProtocol: {mode: Off}}", "clients.proxyProtocol.mode"},
		"TLS 1.1":                         {`clients: {tls: {minVersion: "1.1"}}`, "minVersion"},
		"a negative drain time":           {"drainSeconds: -1", "drainSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := "apiVersion: config.aether.io/v1\nkind: GatewayParameters\nmetadata: {name: x, namespace: x}\nspec:\n  " +
				strings.ReplaceAll(strings.TrimSpace(tc.spec), "\n", "\n  ")
			unknown, refusal := admit(t, manifest)
			if len(unknown) > 0 {
				t.Errorf("unknown: %q", unknown)
			}
			if (tc.refusal == "") != (refusal == "") || !strings.Contains(refusal, tc.refusal) {
				t.Errorf("got %q, want %q", refusal, tc.refusal)
			}
		})
	}
}

func TestGatewayParametersCannotTakeASecret(t *testing.T) {
	unknown, _ := admit(t, `{apiVersion: config.aether.io/v1, kind: GatewayParameters, metadata: {name: x},
		spec: {dedicated: {podTemplate: {volumes: [], serviceAccountName: admin, env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}}}}`)
	want := "[spec.dedicated.podTemplate.env[0].valueFrom spec.dedicated.podTemplate.serviceAccountName spec.dedicated.podTemplate.volumes]"
	if got := fmt.Sprint(unknown); got != want {
		t.Errorf("dropped fields: got %s, want %s", got, want)
	}
}

// The definition refuses what the webhook would refuse, and nothing else.
func TestMeshConfigDefinitionAgreesWithValidate(t *testing.T) {
	for _, rate := range []float64{-1, -1e-9, 0, 0.5, 1, 1.0000001, 7} {
		spec := &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{TraceSampleRate: proto.Float64(rate)}}
		_, refusal := admit(t, meshConfig(fmt.Sprintf("{proxy: {traceSampleRate: %v}}", rate)))
		if valid := len(meshconfig.Validate(spec)) == 0; valid != (refusal == "") {
			t.Errorf("traceSampleRate %v: valid %v, definition says %q", rate, valid, refusal)
		}
	}
	for _, percent := range []uint32{0, 1, 100, 101, 1 << 31} {
		spec := &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogSuccessSampleRate: &percent}}
		_, refusal := admit(t, meshConfig(fmt.Sprintf("{proxy: {accessLogSuccessSampleRate: %d}}", percent)))
		if valid := len(meshconfig.Validate(spec)) == 0; valid != (refusal == "") {
			t.Errorf("accessLogSuccessSampleRate %d: valid %v, definition says %q", percent, valid, refusal)
		}
	}
	for _, spec := range []string{"{proxy: {emitStatsPod: yes please}}", "{proxy: []}", "{proxy: {accessLogSuccessSampleRate: -1}}", "{proxy: {accessLogSuccessSampleRate: 0.5}}"} {
		_, refusal := admit(t, meshConfig(spec))
		if _, _, err := meshconfig.Parse([]byte(spec)); err == nil || refusal == "" {
			t.Errorf("%s: parser says %v, definition says %q", spec, err, refusal)
		}
	}
}

func TestMeshConfigDefinitionKeepsUnknownFields(t *testing.T) {
	if unknown, refusal := admit(t, meshConfig("{mesh: {mtls: STRICT}, proxy: {retries: 3}}")); len(unknown) > 0 || refusal != "" {
		t.Errorf("dropped %q, refused %q", unknown, refusal)
	}
}

func TestMeshConfigIsNamedDefault(t *testing.T) {
	_, refusal := admit(t, strings.Replace(meshConfig("{}"), "name: default", "name: mine", 1))
	if !strings.Contains(refusal, "named default") {
		t.Errorf("got %q", refusal)
	}
}

func meshConfig(spec string) string {
	return "{apiVersion: config.aether.io/v1, kind: MeshConfig, metadata: {name: default, namespace: x}, spec: " + spec + "}"
}
