package podtemplate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/routing/podtemplate"
)

// What gets a pod privileges, host access, volumes or another identity by a name is
// dropped, and said to be.
func TestHostileNamesAreDropped(t *testing.T) {
	annotations := []string{
		"container.apparmor.security.beta.kubernetes.io/envoy", "seccomp.security.alpha.kubernetes.io/pod", "container.seccomp.security.alpha.kubernetes.io/envoy",
		"kubernetes.io/psp", "cdi.k8s.io/vendor", "k8s.v1.cni.cncf.io/networks", "io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.userns-mode",
		"io.containerd.cri.runtime-handler", "sidecar.istio.io/inject", "linkerd.io/inject", "vault.hashicorp.com/agent-inject", "instrumentation.opentelemetry.io/inject-go",
		"eks.amazonaws.com/role-arn", "iam.amazonaws.com/role", "cni.projectcalico.org/ipAddrs", "devices.noderesource.dev/container.envoy", "config.aether.io/gateway",
		"CDI.K8S.IO/vendor",
	}
	labels := []string{
		"gateway.networking.k8s.io/gateway-name", "gateway.networking.k8s.io/gateway-class-name", "app.kubernetes.io/component", "app.kubernetes.io/managed-by",
		"pod-template-hash", "controller-revision-hash", "config.aether.io/x", "pod-security.kubernetes.io/enforce", "azure.workload.identity/use", "istio.io/rev",
	}
	variables := []string{
		"LD_PRELOAD", "LD_LIBRARY_PATH", "GODEBUG", "COXSWAIN_DISCOVERY_TRUST_DOMAIN", "ENVOY_UID", "AETHER_X", "KUBERNETES_SERVICE_HOST", "POD_NAME", "OTEL_RESOURCE_ATTRIBUTES",
		"SSL_CERT_FILE", "HTTPS_PROXY", "https_proxy", "GRPC_XDS_BOOTSTRAP", "GLIBC_TUNABLES", "PATH", "SSLKEYLOGFILE", "MALLOC_CONF",
	}
	resources := []corev1.ResourceName{"nvidia.com/gpu", "hugepages-2Mi", "example.com/device", "smarter-devices/kvm"}
	priority := "system-node-critical"
	var in configv1.PodTemplate
	in.Annotations, in.Labels = map[string]string{}, map[string]string{}
	for _, name := range annotations {
		in.Annotations[name] = "x"
	}
	for _, name := range labels {
		in.Labels[name] = "x"
	}
	for _, name := range variables {
		in.Env = append(in.Env, configv1.EnvVar{Name: name, Value: "x"})
	}
	in.PriorityClassName = &priority
	in.Resources = &configv1.PodResources{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, name := range resources {
		in.Resources.Limits[name] = resource.MustParse("1")
		in.Resources.Requests[name] = resource.MustParse("1")
	}
	kept, dropped := podtemplate.Allow(in)
	if len(kept.Annotations)+len(kept.Labels)+len(kept.Env)+len(kept.Resources.Limits)+len(kept.Resources.Requests) > 0 || kept.PriorityClassName != nil {
		t.Errorf("kept %+v", kept)
	}
	if want := len(annotations) + len(labels) + len(variables) + 2*len(resources) + 1; len(dropped) != want {
		t.Errorf("%d things are said to be dropped, want %d:\n%s", len(dropped), want, strings.Join(dropped, "\n"))
	}
	if !slices.IsSorted(dropped) {
		t.Error("what is dropped is told in no order")
	}
}

func TestWhatIsHarmlessIsKept(t *testing.T) {
	priority, seconds := "web", int64(30)
	in := configv1.PodTemplate{
		Labels:       map[string]string{"team": "shop", "example.com/tier": "edge", "kubernetes.io.example.com/x": "y"},
		Annotations:  map[string]string{"prometheus.io/scrape": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "true", "note": "n"},
		NodeSelector: map[string]string{"kubernetes.io/os": "linux"},
		Tolerations:  []corev1.Toleration{{Key: "edge", Operator: corev1.TolerationOpExists, TolerationSeconds: &seconds}},
		Affinity:     &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{
			{MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: corev1.ScheduleAnyway},
		},
		PriorityClassName: &priority,
		Resources: &configv1.PodResources{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")},
			Limits:   corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")},
		},
		Env: []configv1.EnvVar{{Name: "TZ", Value: "UTC"}, {Name: "GOMAXPROCS", Value: "2"}, {Name: "MY_PATH"}},
	}
	kept, dropped := podtemplate.Allow(in)
	if len(dropped) > 0 {
		t.Errorf("dropped %v", dropped)
	}
	if diff := cmp.Diff(in, kept); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
