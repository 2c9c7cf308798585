package pod_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

func text(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("testdata/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func template(t *testing.T) *pod.Template {
	t.Helper()
	parsed, err := pod.Parse([]byte(text(t)))
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func gateway() front.Front {
	return front.Front{Gateway: key.Name{Namespace: "shop", Name: "web"}, Class: "coxswain", UID: "uid", Proxies: front.Proxies{DrainSeconds: 600}}
}

// Nothing that can be asked for changes what gives a pod power: whatever is in the
// parameters, and whatever they may yet be let say, all of it but the known additions is
// the template's.
func TestAPodGetsNothingButWhatIsListed(t *testing.T) {
	plain := template(t).For(gateway())
	f := gateway()
	priority, zone := "web", "topology.kubernetes.io/zone"
	hostile := map[string]string{
		"container.apparmor.security.beta.kubernetes.io/envoy": "unconfined", "k8s.v1.cni.cncf.io/networks": "host", "sidecar.istio.io/inject": "true",
		"app.kubernetes.io/component": "shared-proxy", "gateway.networking.k8s.io/gateway-name": "other", "pod-template-hash": "x", "config.aether.io/gateway": "other/other",
		"checksum/discovery": "2", "team": "shop",
	}
	// As it would be if nobody had looked at it before.
	f.Labels, f.Annotations = hostile, hostile
	f.Proxies.Pod = configv1.PodTemplate{
		Labels: hostile, Annotations: hostile, NodeSelector: map[string]string{"pool": "edge"}, PriorityClassName: &priority,
		Tolerations:               []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		Affinity:                  &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: corev1.ScheduleAnyway}},
		Resources:                 &configv1.PodResources{Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}},
		Env:                       []configv1.EnvVar{{Name: "POD_NAME", Value: "proxy-of-another"}, {Name: "TZ", Value: "$(POD_NAME)"}},
	}
	got := template(t).For(f)

	if diff := cmp.Diff(plain.Spec, got.Spec, cmpopts.IgnoreFields(corev1.PodSpec{}, "NodeSelector", "PriorityClassName", "Tolerations", "Affinity", "TopologySpreadConstraints", "InitContainers", "Containers")); diff != "" {
		t.Errorf("(-template +got):\n%s", diff)
	}
	if got.Spec.NodeSelector["pool"] != "edge" || got.Spec.PriorityClassName != "web" || len(got.Spec.Tolerations) != 1 || got.Spec.Affinity == nil {
		t.Errorf("what is allowed is not there: %+v", got.Spec)
	}
	if c := got.Spec.TopologySpreadConstraints; len(c) != 1 || c[0].TopologyKey != zone || c[0].LabelSelector.MatchLabels["gateway.networking.k8s.io/gateway-name"] != "web" {
		t.Errorf("topology spread constraints %+v", c)
	}
	for i, pair := range [][2]corev1.Container{{plain.Spec.InitContainers[0], got.Spec.InitContainers[0]}, {plain.Spec.Containers[0], got.Spec.Containers[0]}} {
		if diff := cmp.Diff(pair[0], pair[1], cmpopts.IgnoreFields(corev1.Container{}, "Env", "Resources")); diff != "" {
			t.Errorf("container %d (-template +got):\n%s", i, diff)
		}
		want := append(slices.Clone(pair[0].Env), corev1.EnvVar{Name: "TZ", Value: "$$(POD_NAME)"})
		if diff := cmp.Diff(want[len(pair[0].Env):], pair[1].Env[len(pair[0].Env):], cmpopts.IgnoreSliceElements(func(e corev1.EnvVar) bool { return i == 1 && e.Name == "POD_NAME" })); diff != "" {
			t.Errorf("environment of container %d (-want +got):\n%s", i, diff)
		}
	}
	if len(got.Spec.InitContainers) != 1 || len(got.Spec.Containers) != 1 {
		t.Error("there are other containers")
	}
	wantLabels := map[string]string{
		"app.kubernetes.io/name": "aether", "app.kubernetes.io/instance": "aether", "app.kubernetes.io/component": "dedicated-proxy",
		"app.kubernetes.io/managed-by": "aether-controller", "gateway.networking.k8s.io/gateway-name": "web",
		"gateway.networking.k8s.io/gateway-class-name": "coxswain", "checksum/discovery": "2", "team": "shop",
	}
	if diff := cmp.Diff(wantLabels, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	wantAnnotations := map[string]string{"config.aether.io/gateway": "shop/web", "checksum/discovery": "1", "team": "shop"}
	if diff := cmp.Diff(wantAnnotations, got.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestAPodIsTheGatewaysOwn(t *testing.T) {
	got := template(t).For(gateway())
	proxy, envoy := got.Spec.InitContainers[0], got.Spec.Containers[0]
	if got.Spec.ServiceAccountName != "web-coxswain" || !slices.Contains(proxy.Args, "--scope=shop/web") || slices.Contains(proxy.Args, "--scope=shared") {
		t.Errorf("account %s, args %v", got.Spec.ServiceAccountName, proxy.Args)
	}
	if !slices.Contains(proxy.Args, "--drain-timeout=10m5s") || *got.Spec.TerminationGracePeriodSeconds != 620 ||
		!slices.Contains(proxy.Lifecycle.PreStop.Exec.Command, "--timeout=10m10s") || strings.Join(envoy.Command, " ") != "envoy --config-path /var/run/aether/envoy.json --drain-time-s 600" || len(envoy.Args) > 0 {
		t.Errorf("drain: %v, %d s, %v, %v %v", proxy.Args, *got.Spec.TerminationGracePeriodSeconds, proxy.Lifecycle.PreStop.Exec.Command, envoy.Command, envoy.Args)
	}
	none := gateway()
	none.Proxies.DrainSeconds = 0
	if got := template(t).For(none); !slices.Contains(got.Spec.InitContainers[0].Args, "--drain-timeout=6s") {
		t.Errorf("without time to drain: %v", got.Spec.InitContainers[0].Args)
	}
}

func TestTemplatesThatCannotBeADedicatedGatewaysAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ old, new, want string }{
		"no YAML":                      {"metadata:", "{", "template"},
		"an unknown field":             {"spec:\n", "spec:\n  hostNetwok: true\n", "hostNetwok"},
		"no proxy":                     {"name: aether-proxy", "name: proxy", "there is no aether-proxy"},
		"no Envoy":                     {"name: envoy", "name: other", "there is no envoy"},
		"a proxy that ends":            {"restartPolicy: Always", "restartPolicy: Never", "restartPolicy"},
		"a token of the API":           {"automountServiceAccountToken: false", "automountServiceAccountToken: true", "automountServiceAccountToken"},
		"no scope":                     {"--scope=shared", "--scope=other", "0 times"},
		"a Secret":                     {"configMap: {name: coxswain-discovery-trust, optional: true}", "secret: {secretName: x}", "trust-bundle"},
		"a ConfigMap of its namespace": {"name: coxswain-discovery-trust", "name: other", "trust-bundle"},
		"a path of the host":           {"emptyDir: {medium: Memory}", "hostPath: {path: /}", "run"},
		"a delay that is none":         {"--drain-delay=5s", "--drain-delay=5", "drain-delay"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pod.Parse([]byte(strings.Replace(text(t), tt.old, tt.new, 1)))
			if !errors.Is(err, pod.ErrTemplate) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one that names %s", err, tt.want)
			}
		})
	}
}

// What the chart renders is a template: its goldens are.
func TestTheChartsTemplateIsOne(t *testing.T) {
	goldens, err := filepath.Glob("../../../test/chart/testdata/*.golden.yaml")
	if err != nil || len(goldens) == 0 {
		t.Fatalf("goldens %v, %v", goldens, err)
	}
	for _, golden := range goldens {
		data, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for document := range strings.SplitSeq(string(data), "\n---\n") {
			var m corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(document), &m); err != nil || m.Name != "aether-proxy-template" || m.Kind != "ConfigMap" {
				continue
			}
			found = true
			parsed, err := pod.Parse([]byte(m.Data["pod.yaml"]))
			if err != nil {
				t.Errorf("%s: %v", golden, err)
				continue
			}
			out := parsed.For(gateway())
			if out.Spec.InitContainers[0].Args[0] != "--scope=shop/web" || len(out.Spec.TopologySpreadConstraints) == 0 {
				t.Errorf("%s: %+v", golden, out.Spec)
			}
		}
		if !found {
			t.Errorf("%s has no template", golden)
		}
	}
}
