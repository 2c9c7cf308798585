package kind

import (
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
)

func TestBlame(t *testing.T) {
	tests := map[string]struct {
		kind   Kind
		sent   []string
		detail string
		want   map[string]string
	}{
		"clusters are separated by commas": {
			Clusters,
			[]string{"b1", "b2", "g"},
			"Error adding/updating cluster(s) b2: bad, so: bad, b1: worse",
			map[string]string{"b2": "bad, so: bad", "b1": "worse"},
		},
		"listeners are one a line": {
			Listeners,
			[]string{"ns/gw/80", "ns/gw/8080"},
			"Error adding/updating listener(s) ns/gw/80: cannot bind '[::]:80': Address already in use\nns/gw/8080: no\n",
			map[string]string{"ns/gw/80": "cannot bind '[::]:80': Address already in use", "ns/gw/8080": "no"},
		},
		"a name within a name is not that name": {
			Clusters,
			[]string{"a", "b/a"},
			"Error adding/updating cluster(s) b/a: x",
			map[string]string{"b/a": "x"},
		},
		"a name in the middle of a text is not one": {
			Clusters,
			[]string{"a", "b"},
			"Error adding/updating cluster(s) b: cannot use a: no",
			map[string]string{"b": "cannot use a: no"},
		},
		"an error of decoding names nothing": {
			Clusters, []string{"a", "b"}, "Invalid duration: Expected positive duration: seconds: -1", nil,
		},
		"a name that was not sent leaves all in doubt": {
			Clusters, []string{"a"}, "Error adding/updating cluster(s) z: x, a: y", nil,
		},
		"a text that may be cut off leaves all in doubt": {
			Clusters, []string{"a", "b"}, "Error adding/updating cluster(s) a: " + strings.Repeat("x", 4096), nil,
		},
		"scopes are not named, whatever the text says": {
			Scopes, []string{"a", "b"}, "Error adding/updating scope(s) a: x", nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Blame(tt.kind, tt.sent, tt.detail)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func FuzzBlame(f *testing.F) {
	f.Add("a", "b", "Error adding/updating cluster(s) a: x, b: y")
	f.Fuzz(func(t *testing.T, a, b, detail string) {
		for n := range Blame(Clusters, []string{a, b}, detail) {
			if n != a && n != b {
				t.Errorf("blamed %q", n)
			}
		}
	})
}

func TestEnvironmental(t *testing.T) {
	for detail, want := range map[string]bool{
		"cannot bind '127.0.0.1:80': Address already in use":                                   true,
		"error adding listener: 'l' has duplicate address '127.0.0.1:1' as existing listener":  true,
		"failed to open netns file /var/run/netns/p: No such file or directory":                true,
		"Didn't find a registered cluster factory implementation for name: 'nope'":             false,
		"Proto constraint validation failed (field: \"route_specifier\", reason: is required)": false,
	} {
		if got := Environmental(detail); got != want {
			t.Errorf("%q: %v, want %v", detail, got, want)
		}
	}
}

func TestMarkChangesNothingButMetadata(t *testing.T) {
	s := &routev3.ScopedRouteConfiguration{Name: "s", RouteConfiguration: &routev3.RouteConfiguration{
		Name: "r", VirtualHosts: []*routev3.VirtualHost{{Name: "v", Domains: []string{"*"}}},
	}}
	enc, err := proto.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	a, b := Mark(enc, "e-1"), Mark(enc, "e-2")
	if string(a) == string(b) || string(a) == string(enc) {
		t.Error("marks do not differ")
	}
	var got routev3.ScopedRouteConfiguration
	if err := proto.Unmarshal(a, &got); err != nil {
		t.Fatal(err)
	}
	got.RouteConfiguration.Metadata = nil
	if diff := cmp.Diff(s, &got, protocmp.Transform()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMentions(t *testing.T) {
	enc, err := proto.Marshal(&routev3.VirtualHost{Routes: []*routev3.Route{{Action: &routev3.Route_Route{Route: &routev3.RouteAction{
		ClusterSpecifier: &routev3.RouteAction_WeightedClusters{WeightedClusters: &routev3.WeightedCluster{
			Clusters: []*routev3.WeightedCluster_ClusterWeight{{Name: "ns/svc/8080"}},
		}},
	}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"ns/svc/8080": true, "ns/svc/80": false, "svc/8080": false} {
		if got := Mentions(enc, [][]byte{Field(name)}); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

func TestEndpointsOf(t *testing.T) {
	for want, c := range map[string]*clusterv3.Cluster{
		"a":   {Name: "a", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}},
		"svc": {Name: "b", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}, EdsClusterConfig: &clusterv3.Cluster_EdsClusterConfig{ServiceName: "svc"}},
		"":    {Name: "c", ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}},
	} {
		r, err := resource.New(c.GetName(), c)
		if err != nil {
			t.Fatal(err)
		}
		if got := EndpointsOf(r); got != want {
			t.Errorf("%s waits for %q, want %q", c.GetName(), got, want)
		}
	}
}

func TestListenersMentionTheWayToTheirScopesAndNotTheOther(t *testing.T) {
	const table = "ns/web/80"
	type model interface {
		Resource() (*resource.Resource, error)
	}
	encoded := func(m model) *resource.Resource {
		r, err := m.Resource()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, perHost := range []bool{false, true} {
		scopes := []model{envoy.Scope{Table: table, Host: "*", PerHost: perHost}}
		if perHost {
			scopes = append(scopes, envoy.Scope{Table: table, Host: "a.test", PerHost: true, VirtualHosts: []envoy.VirtualHost{{Host: "a.test"}}})
		}
		for _, of := range []string{table, "ns/web/8", "ns/web/800"} {
			for _, by := range []bool{false, true} {
				l := encoded(envoy.Listener{Name: of, Address: "127.0.0.1", Port: 80, Chains: []envoy.Chain{{Name: of, PerHost: by}}})
				for _, m := range scopes {
					s := encoded(m)
					here, otherwise := Ways(s.Name.Name)
					if got, want := Mentions(l.Payload, [][]byte{here}), of == table && by == perHost; got != want {
						t.Errorf("listener %s, a scope for each host %t, leads to %s: %t", of, by, s.Name.Name, got)
					}
					if got, want := Mentions(l.Payload, [][]byte{otherwise}), of == table && by != perHost; got != want {
						t.Errorf("listener %s, a scope for each host %t, leads elsewhere than %s: %t", of, by, s.Name.Name, got)
					}
				}
			}
		}
	}
}

func TestNothingLeadsToWhatNoRequestFinds(t *testing.T) {
	for _, name := range []string{"ns/web/80|*:trial", "ns/web/80|a.test:trial", "a.test"} {
		if here, otherwise := Ways(name); here != nil || otherwise != nil {
			t.Errorf("%s: %q, %q", name, here, otherwise)
		}
	}
}
