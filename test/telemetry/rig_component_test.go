//go:build component

// Package telemetry_test runs an instance beside an OpenTelemetry Collector, and reads there
// what the controller and the proxy say of themselves.
package telemetry_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/test/collector"
	"aether.io/aether/internal/test/instance"
)

const (
	port     = 8080
	patience = 60 * time.Second // metrics are sent every 10 s
)

var (
	binaries string // directory of the built commands
	envoy    string
)

func TestMain(m *testing.M) {
	envoy = os.Getenv("AETHER_ENVOY")
	os.Exit(instance.WithPrograms(envoy, func(programs string) int {
		binaries = programs
		return m.Run()
	}))
}

const gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners: [{name: http, protocol: HTTP, port: 8080}]
`

// start runs an instance that exports everything to a collector, with further flags of the controller.
func start(t *testing.T, endpoint string, files map[string]string, flags ...string) *instance.Instance {
	t.Helper()
	work := t.TempDir()
	dir := filepath.Join(work, "manifests")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	offset, err := instance.FreeOffset(port)
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, f := range append([]string{"--otel-enabled", "--logs-enabled", "--trace-export", "--trace-sample-rate=1", "--otlp-endpoint=" + endpoint}, flags...) {
		args = append(args, "--controller-flag="+f)
	}
	in, err := instance.Start(t.Context(), instance.Config{
		Aetherctl: filepath.Join(binaries, "aetherctl"), Envoy: envoy, Dir: dir, StateDir: filepath.Join(work, "state"), Offset: offset, Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(in.Dump())
		}
		if err := in.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return in
}

func endpoint(c *collector.Collector) string { return fmt.Sprintf("%s:%d", c.Host, c.Port) }

// await waits for what a collector is to have, and says what lacks.
func await(t *testing.T, what string, lacks func() string) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	look := time.NewTicker(200 * time.Millisecond)
	defer look.Stop()
	for {
		why := lacks()
		if why == "" {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("waited for %s: %s", what, why)
		case <-look.C:
		}
	}
}

// indent makes a text the value of a block of YAML.
func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}
