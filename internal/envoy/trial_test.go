package envoy_test

import (
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

func resourceOf(t *testing.T, m model) *resource.Resource {
	t.Helper()
	r, err := m.Resource()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decoded(t *testing.T, r *resource.Resource, into proto.Message) {
	t.Helper()
	if err := proto.Unmarshal(r.Payload, into); err != nil {
		t.Fatal(err)
	}
}

func TestATrialCopyIsTheScopeUnderAnotherNameAndKey(t *testing.T) {
	original := resourceOf(t, envoy.Scope{
		Table: "ns/web/80", Host: "*", Origin: []object.Key{{Kind: object.HTTPRoute, Namespace: "ns", Name: "a"}},
		VirtualHosts: []envoy.VirtualHost{{Host: "a.example", Routes: []envoy.Route{{Name: "ns/a/0/0"}}}},
	})
	trial, err := envoy.Trial(original)
	if err != nil {
		t.Fatal(err)
	}
	var want, got routev3.ScopedRouteConfiguration
	decoded(t, original, &want)
	decoded(t, trial, &got)
	key := func(m *routev3.ScopedRouteConfiguration) string { return m.GetKey().GetFragments()[0].GetStringKey() }
	if trial.Name.Name == original.Name.Name || key(&got) == key(&want) || trial.TypeURL != original.TypeURL || got.GetName() != trial.Name.Name {
		t.Errorf("the copy of %s is %s, named %s, with key %s", original.Name, trial.Name, got.GetName(), key(&got))
	}
	if !cmp.Equal(trial.Origin, original.Origin) {
		t.Errorf("made of %v, want %v", trial.Origin, original.Origin)
	}
	got.Name, got.RouteConfiguration.Name, got.Key = want.GetName(), want.GetRouteConfiguration().GetName(), want.GetKey()
	if diff := cmp.Diff(&want, &got, protocmp.Transform()); diff != "" {
		t.Errorf("the content differs (-original +copy):\n%s", diff)
	}
}

func TestOnlyScopesHaveTrialCopies(t *testing.T) {
	if r, err := envoy.Trial(resourceOf(t, envoy.Cluster{Name: "ns/a/80"})); err == nil {
		t.Errorf("made %s", r.Name)
	}
}

// Whatever a client sends, what Envoy looks for ends before the first colon: the key of a
// copy has one.
func TestNoRequestMakesTheKeyOfATrialCopy(t *testing.T) {
	for _, perHost := range []bool{false, true} {
		host := "*"
		if perHost {
			host = "a.example"
		}
		trial, err := envoy.Trial(resourceOf(t, envoy.Scope{
			Table: "ns/web/80", Host: host, PerHost: perHost, VirtualHosts: []envoy.VirtualHost{{Host: "a.example"}},
		}))
		if err != nil {
			t.Fatal(err)
		}
		var m routev3.ScopedRouteConfiguration
		decoded(t, trial, &m)
		var listener listenerv3.Listener
		decoded(t, resourceOf(t, envoy.Listener{
			Name: "ns/web/80", Address: "127.0.0.1", Port: 80, Chains: []envoy.Chain{{Name: "ns/web/80", PerHost: perHost}},
		}), &listener)
		builders := keyBuilders(t, &listener)
		if len(builders) == 0 {
			t.Fatal("the listener has no key builder")
		}
		fragments := m.GetKey().GetFragments()
		for _, b := range builders {
			if len(b.GetFragments()) != len(fragments) {
				t.Fatalf("requests make %d fragments, the copy has %d", len(b.GetFragments()), len(fragments))
			}
			for i, f := range b.GetFragments() {
				by := f.GetHeaderValueExtractor()
				if by.GetElementSeparator() == "" || by.GetIndex() != 0 {
					t.Fatalf("the key is not what comes before a separator: %v", by)
				}
				if !strings.Contains(fragments[i].GetStringKey(), by.GetElementSeparator()) {
					t.Errorf("the key %q is one that a request can make: it has no %q", fragments[i].GetStringKey(), by.GetElementSeparator())
				}
			}
		}
	}
}

func keyBuilders(t *testing.T, l *listenerv3.Listener) []*hcmv3.ScopedRoutes_ScopeKeyBuilder {
	t.Helper()
	var out []*hcmv3.ScopedRoutes_ScopeKeyBuilder
	for _, chain := range append(l.GetFilterChains(), l.GetDefaultFilterChain()) {
		for _, f := range chain.GetFilters() {
			var m hcmv3.HttpConnectionManager
			if f.GetTypedConfig().MessageIs(&m) {
				if err := f.GetTypedConfig().UnmarshalTo(&m); err != nil {
					t.Fatal(err)
				}
				out = append(out, m.GetScopedRoutes().GetScopeKeyBuilder())
			}
		}
	}
	return out
}
