package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/drain"
)

const patience = 30 * time.Second

// arguments are a proxy's in a pod, all in one folder, without a controller and an Envoy.
func arguments(t *testing.T, more ...string) []string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ap") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := func(name string) string { return filepath.Join(dir, name) }
	return append([]string{
		"--discovery-endpoint=https://127.0.0.1:1", "--discovery-bootstrap-endpoint=https://127.0.0.1:1",
		"--discovery-server-id=spiffe://cluster.local/ns/aether-system/sa/aether-controller", "--proxy-id=pod-1", "--scope=shared",
		"--discovery-sa-token-path=" + at("token"), "--discovery-ca-bundle-path=" + at("ca.crt"),
		"--xds-socket=" + at("xds.sock"), "--envoy-admin-socket=" + at("admin.sock"), "--envoy-bootstrap=" + at("envoy.json"),
		"--last-good-dir=" + at("last-good"), "--drain-socket=" + at("drain.sock"),
	}, more...)
}

// address is a free one of loopback.
func address(t *testing.T) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

func TestWhatAPodsProxyAnswersFromItsStartToItsEnd(t *testing.T) {
	health, metrics := address(t), address(t)
	_, inspect, _ := net.SplitHostPort(address(t))
	args := arguments(t, "--inspect-port="+inspect, "--health-probe-bind-address="+health, "--metrics-bind-address="+metrics, "--drain-delay=10ms")
	ctx, stop := context.WithCancel(context.Background())
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetErr(io.Discard)
	done := make(chan error, 1)
	go func() { done <- cmd.ExecuteContext(ctx) }()
	deadline := time.Now().Add(patience)
	for {
		code, body := get(t, health, "/startz")
		if code == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("/startz: %d %s", code, body)
		}
	}
	for path, want := range map[string]struct {
		code int
		text string
	}{
		"/healthz": {http.StatusOK, "ok"},
		"/readyz":  {http.StatusServiceUnavailable, `"reason":"NoIdentity"`},
		"/drain":   {http.StatusNotFound, ""}, // nobody on the network begins one
	} {
		if code, body := get(t, health, path); code != want.code || !strings.Contains(body, want.text) {
			t.Errorf("%s: %d %s, want %d with %q", path, code, body, want.code, want.text)
		}
	}
	code, body := get(t, metrics, "/metrics")
	for _, want := range []string{"\naether_envoy_metrics_up 0\n", "\ncoxswain_discovery_client_state{state=\"NotReady\"} 1\n", "\naether_drain_phase 0\n"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/metrics: %d, has no %q", code, want)
		}
	}

	drained := make(chan string, 1)
	go func() { // as the kubelet does for Envoy, at the same time
		_, body := get(t, health, drain.OverPath)
		drained <- body
	}()
	var socket string
	for _, a := range args {
		if strings.HasPrefix(a, "--drain-socket=") {
			socket = a
		}
	}
	ask := root()
	ask.SetArgs([]string{"drain", socket, "--timeout=" + patience.String()})
	if err := ask.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if body := <-drained; !strings.HasPrefix(body, "drained after ") {
		t.Errorf("/drained: %s", body)
	}
	if code, body := get(t, health, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"Draining"`) {
		t.Errorf("/readyz: %d %s", code, body)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("it ended with %v", err)
	}
}

func TestFlagsThatMeanNothingAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		more []string
		want string
	}{
		"no place to answer questions":       {nil, "inspect-socket inspect-port"},
		"two places to answer questions":     {[]string{"--inspect-port=8083", "--inspect-socket=/s"}, "inspect-port inspect-socket"},
		"a port that is none":                {[]string{"--inspect-port=0"}, "--inspect-port 0"},
		"an address that is none":            {[]string{"--inspect-port=8083", "--metrics-bind-address=8080"}, "--metrics-bind-address"},
		"a name in the place of an address":  {[]string{"--inspect-port=8083", "--health-probe-bind-address=localhost:80"}, "--health-probe-bind-address"},
		"a delay that is all of the timeout": {[]string{"--inspect-port=8083", "--drain-delay=45s"}, "--drain-timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(arguments(t, c.more...))
			err := cmd.ExecuteContext(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want it to name %q", err, c.want)
			}
		})
	}
}

func TestADrainOfNobodyFails(t *testing.T) {
	cmd := root()
	cmd.SetArgs([]string{"drain", "--drain-socket=" + filepath.Join(t.TempDir(), "none")})
	if err := cmd.ExecuteContext(t.Context()); err == nil {
		t.Error("it did not")
	}
}
