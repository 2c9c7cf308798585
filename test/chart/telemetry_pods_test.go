//go:build cluster

package chart_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/test/collector"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/image"
	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/pods"
	"aether.io/aether/test/traffic"
)

const collectorImage = "aether.test/collector:1"

const collectorManifest = `
apiVersion: v1
kind: Secret
metadata: {name: collector}
stringData: %s
---
apiVersion: v1
kind: Service
metadata: {name: collector}
spec: {selector: {app: collector}, ports: [{port: 4317}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: collector}
spec:
  replicas: 1
  selector: {matchLabels: {app: collector}}
  template:
    metadata: {labels: {app: collector}}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
        - name: collector
          image: ` + collectorImage + `
          imagePullPolicy: IfNotPresent
          args: [--config, "file:/etc/collector/config.yaml"]
          readinessProbe: {tcpSocket: {port: 4317}, periodSeconds: 1}
          securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
          volumeMounts: [{name: config, mountPath: /etc/collector}]
      volumes: [{name: config, secret: {secretName: collector}}]
`

// What it receives it writes to its log.
const collectorConfig = `
receivers:
  otlp: {protocols: {grpc: {endpoint: "0.0.0.0:4317", tls: {cert_file: /etc/collector/tls.crt, key_file: /etc/collector/tls.key}}}}
exporters:
  lines: {path: /dev/stdout}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines:
    logs: {receivers: [otlp], exporters: [lines]}
    traces: {receivers: [otlp], exporters: [lines]}
    metrics: {receivers: [otlp], exporters: [lines]}
`

// runCollector has a collector with TLS in the test's namespace, and returns its address and
// the authority of its certificate.
func runCollector(t *testing.T, r *pods.Rig) (endpoint string, ca []byte) {
	t.Helper()
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	program, err := build.Collector(r.Root).Make(t.Context(), cache, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	err = r.Cluster.Give(t.Context(), image.Image{
		Name: collectorImage, Entrypoint: []string{"/usr/local/bin/collector"}, User: "65532:65532", Files: map[string]string{"/usr/local/bin/collector": program},
	})
	if err != nil {
		t.Fatal(err)
	}
	name := "collector." + r.Namespace + ".svc.cluster.local"
	cert, key, ca := collector.Certificate(t, name)
	files, err := json.Marshal(map[string]string{"config.yaml": collectorConfig, "tls.crt": string(cert), "tls.key": string(key)})
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(fmt.Sprintf(collectorManifest, files))
	r.Kubectl("rollout", "status", "deployment/collector", "--timeout="+pods.Patience.String())
	return name + ":4317", ca
}

// delivered waits until the condition of the test's MeshConfig begins as wanted.
func delivered(r *pods.Rig, want string) {
	r.Helper()
	r.Eventually(func(context.Context) string {
		got := r.Kubectl("get", "meshconfig", "default", `--output=jsonpath={range .status.conditions[?(@.type=="TelemetryDelivered")]}{.status} {.reason}: {.message}{end}`)
		if strings.HasPrefix(got, want) {
			return ""
		}
		return fmt.Sprintf("TelemetryDelivered is %q, want %q", got, want)
	})
}

// statusSays waits until aetherctl status, with these arguments, says something, or not.
func statusSays(r *pods.Rig, text string, is bool, args ...string) {
	r.Helper()
	r.Eventually(func(ctx context.Context) string {
		cmd := exec.CommandContext(ctx, filepath.Join(r.Programs, "aetherctl"), append([]string{"status"}, args...)...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+r.Cluster.Kubeconfig(), "XDG_STATE_HOME="+r.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), text) == is {
			return ""
		}
		return fmt.Sprintf("aetherctl status (%v), of which %q is wanted: %t\n%s", err, text, is, out)
	})
}

func TestPodsTelemetryArrivesAndItIsSaidWhenItDoesNot(t *testing.T) {
	r, address := serving(t)
	endpoint, ca := runCollector(t, r)
	restoreAfter(r)
	authorities := "collector-" + r.Namespace
	err := r.Install(t.Context(), release.Name, chart(r), "--set-string", "otel.endpoint="+endpoint, "--set", "otel.enabled=true", "--set", "otel.tls.enabled=true", "--set-string", "otel.tls.caConfigMap="+authorities)
	if err != nil {
		t.Fatal(err)
	}
	r.Apply(`{apiVersion: config.aether.io/v1, kind: MeshConfig, metadata: {name: default}, spec: {proxy: {accessLogsEnabled: true, accessLogSuccessSampleRate: 1, tracingEnabled: true, traceSampleRate: 0.01}}}`)
	flow := traffic.Start(t, address, host, traffic.KeepAlive, traffic.HTTP2)
	delivered(r, "False CollectorCAMissing: ConfigMap/aether-system/"+authorities+" does not exist")

	r.System("create", "configmap", authorities, "--from-literal=ca.crt="+string(ca))
	r.Cleanup(func() { r.System("delete", "configmap", authorities) })
	delivered(r, "True Delivered: ")
	statusSays(r, "Collector/"+endpoint, false)
	received := r.Kubectl("logs", "deployment/collector")
	for _, want := range []string{`"resourceLogs"`, `"resourceSpans"`, r.Namespace + "/web/80"} {
		if !strings.Contains(received, want) {
			t.Errorf("the collector did not receive %s", want)
		}
	}

	r.Kubectl("scale", "deployment/collector", "--replicas=0")
	delivered(r, "False CollectorUnreachable: what ")
	statusSays(r, "Collector/"+endpoint+": CollectorUnreachable: ", true)
	r.Kubectl("scale", "deployment/collector", "--replicas=1")
	delivered(r, "True Delivered: ")
	statusSays(r, "Collector/"+endpoint, false)

	r.Apply(`{apiVersion: config.aether.io/v1, kind: MeshConfig, metadata: {name: default}, spec: {proxy: {accessLogsEnabled: false, tracingEnabled: false}}}`)
	r.Eventually(func(context.Context) string {
		return r.Kubectl("get", "meshconfig", "default", `--output=jsonpath={.status.conditions[?(@.type=="TelemetryDelivered")].reason}`)
	})
	flow.Stop(t)
}
