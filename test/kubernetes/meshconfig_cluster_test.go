//go:build cluster

package kubernetes_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	benchrig "aether.io/aether/test/bench/rig"
)

const meshConfig = `
apiVersion: config.aether.io/v1
kind: MeshConfig
metadata: {name: default, namespace: %s}
spec: {proxy: {accessLogSuccessSampleRate: %d}}
`

// applied is what the status of a MeshConfig says, in one line.
const applied = `{.status.observedGeneration} {.status.conditions[?(@.type=="Applied")].status} ` +
	`{.status.conditions[?(@.type=="Applied")].reason} {.status.conditions[?(@.type=="Applied")].observedGeneration} ` +
	`{.status.effective.proxy.accessLogSuccessSampleRate.value} {.status.effective.proxy.accessLogSuccessSampleRate.from} ` +
	`{.status.proxies.applied}/{.status.proxies.total}{range .status.proxies.laggards[*]} {.name}:{.generation}:{.reason}{end}`

func TestAMeshConfigIsAppliedWhenProxiesHaveIt(t *testing.T) {
	r := system(t)
	kubectl := func(input string, args ...string) string {
		t.Helper()
		out, err := r.Kubectl(t.Context(), input, args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	says := func(namespace, want string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for {
			got, err := r.Kubectl(ctx, "", "get", "meshconfig", "default", "-n", namespace, "-o", "jsonpath="+applied)
			if err == nil && got == want {
				return
			}
			select {
			case <-ctx.Done():
				t.Fatalf("MeshConfig of %s says %q (%v), want %q\n%s", namespace, got, err, want, kubectl("", "get", "meshconfig", "-A", "-o", "yaml"))
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	if err := r.API.Create(t.Context(), &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: benchrig.Namespace, Name: "web"}, Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "coxswain", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Reach(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	updates := func() string {
		t.Helper()
		stats, err := r.Envoy(t.Context(), "/stats?filter=^listener_manager.listener_(added|modified|removed)$")
		if err != nil {
			t.Fatal(err)
		}
		return stats
	}
	before := updates()

	kubectl(fmt.Sprintf(meshConfig, namespace, 10), "apply", "-f", "-")
	says(namespace, "1 True Applied 1 10 "+namespace+"/default 1/1")

	// It is applied when Envoy has said so, and not when it was written.
	if err := r.Signal("envoy", syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	kubectl(fmt.Sprintf(meshConfig, namespace, 20), "apply", "-f", "-")
	says(namespace, "2 False Progressing 2 20 "+namespace+"/default 0/1 proxy-1:1:NotAcknowledged")
	if err := r.Signal("envoy", syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	says(namespace, "2 True Applied 2 20 "+namespace+"/default 1/1")
	if columns := strings.Fields(kubectl("", "get", "mc", "default", "-n", namespace, "--no-headers")); len(columns) < 4 || columns[1] != "1" && columns[2] != "1" {
		t.Errorf("kubectl's columns: %q", columns)
	}

	// A pod that runs counts, connected or not, and as long as it is there.
	ghost := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "ghost", Labels: map[string]string{"app.kubernetes.io/component": "shared-proxy"}},
		Spec:       corev1.PodSpec{ServiceAccountName: "coxswain-shared-proxy", AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	ghost, err := r.API.Core.Pods(namespace).Create(t.Context(), ghost, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ghost.Status.Phase = corev1.PodRunning
	if _, err := r.API.Core.Pods(namespace).UpdateStatus(t.Context(), ghost, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	says(namespace, "2 False Progressing 2 20 "+namespace+"/default 1/2 ghost:0:Disconnected")
	if err := r.API.Core.Pods(namespace).Delete(t.Context(), "ghost", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	says(namespace, "2 True Applied 2 20 "+namespace+"/default 1/1")

	// A namespace's own is in effect there, and the release's again when it is gone; all live,
	// without an update of a listener.
	kubectl(fmt.Sprintf(meshConfig, benchrig.Namespace, 30), "apply", "-f", "-")
	says(benchrig.Namespace, "1 True Applied 1 30 "+benchrig.Namespace+"/default 1/1")
	runtime, err := r.Envoy(t.Context(), "/runtime")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`"final_value": "30(\\.0*)?"`).MatchString(runtime) {
		t.Errorf("Envoy's runtime does not have the rate of 30:\n%s", runtime)
	}
	if after := updates(); after != before || !strings.Contains(after, "listener_manager") {
		t.Errorf("listeners were updated: %s became %s", before, after)
	}

	// Nonsense is refused, and what was in effect stays.
	if _, err := r.Kubectl(t.Context(), fmt.Sprintf(meshConfig, namespace, 200), "apply", "-f", "-"); err == nil || !strings.Contains(err.Error(), "accessLogSuccessSampleRate") {
		t.Errorf("a rate of 200 percent: %v", err)
	}
	kubectl("", "delete", "meshconfig", "default", "-n", benchrig.Namespace)
	says(namespace, "2 True Applied 2 20 "+namespace+"/default 1/1")

	// A namespace without a Gateway concerns nobody.
	kubectl(fmt.Sprintf(meshConfig, "kube-public", 40), "apply", "-f", "-")
	says("kube-public", "1 True Applied 1 40 kube-public/default 0/0")
}
