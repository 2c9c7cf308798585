package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/remote"
)

func TestWhoIsAskedIsSaidByFlagsOrByWhatThereIs(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBECONFIG", "")
	for args, want := range map[string]string{
		"status":                                   "no kubeconfig says which cluster to ask: start one with",
		"status --release-namespace a":             "no kubeconfig says which cluster to ask: give --kubeconfig",
		"get proxies --kubeconfig /nonexistent":    "kubeconfig: ",
		"get proxies --context a --state-dir /tmp": "give one",
	} {
		t.Run(args, func(t *testing.T) { refused(t, args, want) })
	}
}

func TestProxiesSayForThemselvesWhatTheyGoOnWith(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var b bytes.Buffer
	err := printProxyStates(&b, []proxyState{
		{pod: remote.Pod{Name: "proxy-a", State: "Ready", Restarts: 1}, state: health.State{State: health.Degraded, Reason: health.Disconnected, Since: now.Add(-90 * time.Second), Version: "0123456789abcdef"}},
		{pod: remote.Pod{Name: "proxy-b", State: "CrashLoopBackOff"}, err: errors.New("nothing listens there")},
	}, now)
	if err != nil {
		t.Fatal(err)
	}
	want := `PROXY    POD               RESTARTS  STATE     REASON        FOR    VERSION
proxy-a  Ready             1         Degraded  Disconnected  1m30s  0123456789ab
proxy-b  CrashLoopBackOff  0         unknown   -             -      -

proxy-b: nothing listens there
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}

func TestWhatIsWrongOnAClusterIsNamed(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	unknown := `{"conditions":[{"type":"UnknownFields","status":"True","reason":"UnknownFields","message":"proxy.new"}]}`
	f := findings{settled: true, cluster: true, docs: []inspect.StatusDocument{
		{Kind: "MeshConfig", Namespace: "shop", Name: "default", Status: json.RawMessage(unknown)},
	}, problems: []problem{
		{File: "Secret aether-system/ca", Message: "CA Secret absent and mode=external", Severity: "Refused"},
		{Object: "CustomResourceDefinition/gateways.gateway.networking.k8s.io", Message: "is not installed", Severity: "Refused"},
		{Object: "watch of HTTPRoute", Message: "nothing was heard of it", Severity: "Warning"},
	}, behind: []fleet.Proxy{{Peer: fleet.Peer{ID: "proxy-a"}, Laggard: fleet.LagNoAck, LaggardFrom: at}}}
	var b bytes.Buffer
	if err := f.print(&b, "", query{}); err != nil {
		t.Fatal(err)
	}
	want := `
5 to look at:
  MeshConfig/shop/default: UnknownFields: proxy.new
  Secret aether-system/ca: CA Secret absent and mode=external
  CustomResourceDefinition/gateways.gateway.networking.k8s.io: is not installed
  watch of HTTPRoute: nothing was heard of it
  proxy proxy-a: is behind since 2026-01-02T03:04:05Z: NotAcknowledged
`
	if got := b.String(); !strings.HasSuffix(got, want) {
		t.Errorf("got\n%s, want at its end\n%s", got, want)
	}
}
