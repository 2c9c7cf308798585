//go:build component

package standalone_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/standalone"
	"aether.io/aether/internal/svid"
)

// private is a Gateway that asks for proxies of its own, of which an instance has none.
const private = dedicated + `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: private}
spec:
  gatewayClassName: coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: own}}
  listeners: [{name: http, protocol: HTTP, port: 8081}]
`

// agreeable is an Envoy that accepts everything.
type agreeable struct {
	mu      sync.Mutex
	holding *snapshot.Holding
	updates int
}

func (a *agreeable) Apply(_ context.Context, u resource.Update) (resource.Outcome, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.holding.Apply(u)
	a.updates++
	return resource.Outcome{}, err
}

func (a *agreeable) Held() resource.Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	return resource.Held{Version: a.holding.Version(), Resources: slices.Collect(a.holding.All())}
}

func (a *agreeable) Observe() <-chan struct{} { return nil }

func (a *agreeable) Observed() resource.Observed {
	a.mu.Lock()
	defer a.mu.Unlock()
	return resource.Observed{Version: a.holding.Version(), EnvoyConnected: true, EnvoyVersion: "none", Configured: a.updates > 0}
}

// join adds a token for an account to what the controller accepts, and runs a client
// under it that subscribes to the Gateway default/private.
func (w *world) join(account, pod string) *agreeable {
	w.t.Helper()
	token := attest.NewToken()
	w.addToken(attest.Entry{Token: token, Identity: svid.Workload{Namespace: "default", ServiceAccount: account, Pod: spiffeid.Pod{Name: pod, UID: pod, Node: "node"}}})
	path := filepath.Join(w.t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token.Reveal()), 0o600); err != nil {
		w.t.Fatal(err)
	}
	var settings standalone.Settings
	text, err := os.ReadFile(w.State.Settings())
	if err := errors.Join(err, json.Unmarshal(text, &settings)); err != nil {
		w.t.Fatal(err)
	}
	td, err := spiffeid.ParseTrustDomain(standalone.TrustDomain)
	if err != nil {
		w.t.Fatal(err)
	}
	id, err := spiffeid.Controller(td, standalone.ReleaseNamespace)
	if err != nil {
		w.t.Fatal(err)
	}
	source, err := identity.New(identity.Config{
		Endpoint: "https://" + settings.BootstrapAddr, TokenPath: path, BundlePath: w.State.TrustBundle(), TrustDomain: td, ServerID: id,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	own, err := scope.Gateway("default", "private")
	if err != nil {
		w.t.Fatal(err)
	}
	applier := &agreeable{holding: &snapshot.Holding{}}
	stream, err := client.New(client.Config{Endpoint: "https://" + settings.StreamAddr, Identity: source, Applier: applier, Scope: own, NodeID: pod})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = source.Run(ctx) })
	running.Go(func() { _ = stream.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
	return applier
}

// addToken lets the controller accept one token more.
func (w *world) addToken(e attest.Entry) {
	w.t.Helper()
	old, err := os.ReadFile(w.State.Token())
	if err != nil {
		w.t.Fatal(err)
	}
	proxy := attest.Entry{Token: svid.TokenFromString(string(old)), Identity: svid.Workload{
		Namespace: standalone.ReleaseNamespace, ServiceAccount: spiffeid.SharedProxyAccount,
		Pod: spiffeid.Pod{Name: standalone.ProxyName, UID: "uid", Node: "standalone"},
	}}
	if err := attest.WriteTokenFile(w.State.Tokens(), []attest.Entry{proxy, e}); err != nil {
		w.t.Fatal(err)
	}
}

func TestNoAccountGetsAnIdentityForAGatewaysScope(t *testing.T) {
	for _, account := range []string{"private-coxswain", "somebody-else"} {
		t.Run(account, func(t *testing.T) {
			w := start(t, map[string]string{"gateway.yaml": gateway, "private.yaml": private})
			w.conditionBecomes("gateway/default/private.yaml", "Programmed", "True")
			stranger := w.join(account, "private-2")
			w.eventually("the refusal is recorded", func() (bool, string) {
				out := w.aetherctl("get", "identity")
				return strings.Contains(out, "NotAllowed"), out
			})
			if got := stranger.Held().Resources; len(got) != 0 {
				t.Fatalf("a stranger was sent %d resources", len(got))
			}
		})
	}
}
