package delta

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
	"aether.io/aether/internal/xds/lastgood"
)

// bench is a book with a model of Envoy, and what is on the way between them.
type bench struct {
	t     *testing.T
	rnd   *rand.Rand
	book  *Book
	envoy *model
	down  []*discoveryv3.DeltaDiscoveryResponse
	sent  []string // kinds and names, in order
	seed  uint64

	image *lastgood.Image // committed
}

func newBench(t *testing.T, seed uint64) *bench {
	return &bench{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), book: New("e"), envoy: newModel(), image: lastgood.NewImage()}
}

func (b *bench) connect() {
	b.down = nil
	b.book.Open()
	b.envoy.connect()
}

// step lets one message arrive; false: there is none.
func (b *bench) step() bool {
	for _, r := range b.book.Next() {
		k, _ := kind.Of(r.GetTypeUrl())
		var names []string
		for _, x := range r.GetResources() {
			names = append(names, x.GetName())
		}
		for _, n := range r.GetRemovedResources() {
			names = append(names, "-"+n)
		}
		b.sent = append(b.sent, k.String()+" "+strings.Join(names, ","))
		b.down = append(b.down, r)
	}
	toEnvoy := len(b.down) > 0 && (len(b.envoy.outbox) == 0 || b.rnd.IntN(2) == 0)
	switch {
	case toEnvoy:
		r := b.down[0]
		b.down = b.down[1:]
		b.envoy.receive(r)
	case len(b.envoy.outbox) > 0:
		r := b.envoy.outbox[0]
		b.envoy.outbox = b.envoy.outbox[1:]
		b.book.Request(r)
	default:
		return false
	}
	return true
}

// settle lets all messages arrive and commits.
func (b *bench) settle() {
	b.t.Helper()
	for i := 0; b.step(); i++ {
		if i > 100_000 {
			b.t.Fatalf("no end of messages; the last: %q", b.sent[len(b.sent)-10:])
		}
	}
	b.book.NoScopes()
	for b.step() {
	}
	if !b.book.Settled() {
		var left []string
		for k := range kind.Kind(kind.Count) {
			s := &b.book.kinds[k]
			left = append(left, fmt.Sprintf("%s: subscribed %v, answered %v, names %v, dirty %v, gone %v, groups %v, inflight %d",
				k, s.subscribed, s.answered, slices.Sorted(maps.Keys(s.names)), s.dirty, s.gone, s.groups, len(s.inflight)))
		}
		b.t.Fatalf("seed %d: nothing moves and it is not settled: due %v; %s; sent %q", b.seed, b.book.scopesDue, strings.Join(left, "; "), b.sent)
	}
	b.image.Apply(b.book.Commit())
	if b.envoy.problem != nil {
		b.t.Fatalf("seed %d: %v; sent %q", b.seed, b.envoy.problem, b.sent)
	}
}

func mustNew(t *testing.T, name string, m proto.Message) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func clusterRes(t *testing.T, name, content string) *resource.Resource {
	return mustNew(t, name, &clusterv3.Cluster{
		Name: name, AltStatName: content, ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS},
	})
}

func endpointsRes(t *testing.T, name, content string) *resource.Resource {
	return mustNew(t, name, &endpointv3.ClusterLoadAssignment{
		ClusterName: name, NamedEndpoints: map[string]*endpointv3.Endpoint{content: {}},
	})
}

func scopeRes(t *testing.T, name, cluster, content string) *resource.Resource {
	return mustNew(t, name, &routev3.ScopedRouteConfiguration{Name: name, RouteConfiguration: &routev3.RouteConfiguration{
		VirtualHosts: []*routev3.VirtualHost{{Name: content, Routes: []*routev3.Route{{
			Action: &routev3.Route_Route{Route: &routev3.RouteAction{ClusterSpecifier: &routev3.RouteAction_Cluster{Cluster: cluster}}},
		}}}},
	}})
}

func listenerRes(t *testing.T, name, content string) *resource.Resource {
	hcm, err := anypb.New(&hcmv3.HttpConnectionManager{StatPrefix: content, RouteSpecifier: &hcmv3.HttpConnectionManager_ScopedRoutes{
		ScopedRoutes: &hcmv3.ScopedRoutes{Name: "scopes"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return mustNew(t, name, &listenerv3.Listener{Name: name, FilterChains: []*listenerv3.FilterChain{{
		Filters: []*listenerv3.Filter{{ConfigType: &listenerv3.Filter_TypedConfig{TypedConfig: hcm}}},
	}}})
}

type set map[resource.Name]*resource.Resource

func (s set) names() []resource.Name { return slices.SortedFunc(maps.Keys(s), resource.Name.Compare) }

func (s set) put(r *resource.Resource) { s[r.Name] = r }

// diff is the update from what is committed to s.
func (b *bench) diff(s set, full bool) resource.Update {
	u := resource.Update{Full: full}
	for n, r := range s {
		if old := b.image.Resources[n]; full || old == nil || old.Hash != r.Hash {
			u.Changed = append(u.Changed, r)
		}
	}
	for n := range b.image.Resources {
		if s[n] == nil && !full {
			u.Removed = append(u.Removed, n)
		}
	}
	return u
}

func TestOrder(t *testing.T) {
	first := func() set {
		s := set{}
		s.put(clusterRes(t, "a", "1"))
		s.put(endpointsRes(t, "a", "1"))
		s.put(scopeRes(t, "s", "a", "1"))
		s.put(listenerRes(t, "l", "1"))
		return s
	}
	tests := map[string]struct {
		change func(set)
		want   []string
	}{
		"one new scope is one response": {
			func(s set) { s.put(scopeRes(t, "n", "a", "1")) },
			[]string{"scope n"},
		},
		"a new cluster with endpoints comes before the scope that leads to it": {
			func(s set) {
				s.put(clusterRes(t, "b", "1"))
				s.put(endpointsRes(t, "b", "1"))
				s.put(scopeRes(t, "n", "b", "1"))
			},
			[]string{"cluster b", "endpoints b", "scope n", "endpoints b"},
		},
		"a scope that leads elsewhere does not wait for a new cluster": {
			func(s set) {
				s.put(clusterRes(t, "b", "1"))
				s.put(endpointsRes(t, "b", "1"))
				s.put(scopeRes(t, "n", "a", "1"))
			},
			[]string{"cluster b", "endpoints b", "scope n", "endpoints b"},
		},
		"a changed cluster is followed by its unchanged endpoints": {
			func(s set) { s.put(clusterRes(t, "a", "2")) },
			[]string{"cluster a", "endpoints a"},
		},
		"a changed cluster without endpoints is followed by empty ones": {
			func(s set) {
				s.put(clusterRes(t, "a", "2"))
				delete(s, resource.Name{TypeURL: kind.Endpoints.TypeURL(), Name: "a"})
			},
			[]string{"cluster a", "endpoints a"},
		},
		"removals go last, the listener first": {
			func(s set) {
				clear(s)
				s.put(clusterRes(t, "b", "1"))
				s.put(endpointsRes(t, "b", "1"))
				s.put(scopeRes(t, "n", "b", "1"))
				s.put(listenerRes(t, "m", "1"))
			},
			[]string{"cluster b", "endpoints b", "scope n", "endpoints b", "listener m", "listener -l", "scope -s", "cluster -a"},
		},
		"listeners come after scopes": {
			func(s set) {
				s.put(listenerRes(t, "l", "2"))
				s.put(scopeRes(t, "n", "a", "1"))
			},
			[]string{"scope n", "listener l"},
		},
		"what is Aether's own is never sent": {
			func(s set) {
				n := resource.Name{TypeURL: resource.OwnTypePrefix + "x", Name: "roots"}
				s[n] = &resource.Resource{Name: n, Hash: resource.Hash{1}}
			},
			nil,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 7)
			s := first()
			b.book.Update(b.diff(s, true))
			b.connect()
			b.settle()
			b.sent = nil
			tt.change(s)
			b.book.Update(b.diff(s, false))
			b.settle()
			got := slices.DeleteFunc(b.sent, func(s string) bool { return s == "endpoints a" && !slices.Contains(tt.want, s) })
			// The second answer to a subscription that came late may be anywhere behind its cluster.
			if !slices.Equal(unstable(got), unstable(tt.want)) {
				t.Errorf("sent %q, want %q", got, tt.want)
			}
			if len(b.book.Refused())+len(b.book.Pending()) > 0 {
				t.Errorf("refused %v, pending %v", b.book.Refused(), b.book.Pending())
			}
		})
	}
}

// unstable drops repetitions.
func unstable(sent []string) []string {
	var out []string
	for _, s := range sent {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func TestNothingIsSentBeforeThereIsAnything(t *testing.T) {
	b := newBench(t, 1)
	b.envoy.claims[kind.Clusters]["old"] = "1"
	b.connect()
	for b.step() {
	}
	if len(b.sent) > 0 || b.book.Settled() {
		t.Errorf("sent %q, settled %v", b.sent, b.book.Settled())
	}
	b.book.Update(resource.Update{Full: true})
	b.settle()
	if want := []string{"cluster ", "listener ", "cluster -old"}; !slices.Equal(b.sent, want) {
		t.Errorf("sent %q, want %q", b.sent, want)
	}
}

func TestNamedThatDoNotExistAreAnsweredAtOnce(t *testing.T) {
	b := New("e")
	b.Update(resource.Update{Full: true})
	b.Open()
	for k, want := range map[kind.Kind]struct {
		resources int
		removed   []string
	}{kind.Secrets: {0, []string{"x"}}, kind.Runtime: {1, nil}, kind.Endpoints: {1, nil}} {
		b.Request(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.TypeURL(), ResourceNamesSubscribe: []string{"x"}})
		out := b.Next()
		if len(out) != 1 || len(out[0].GetResources()) != want.resources || !slices.Equal(out[0].GetRemovedResources(), want.removed) {
			t.Errorf("%s: answered %v", k, out)
		}
	}
}

// TestBisect: whichever are bad, all others end up in use, exactly the bad ones are
// refused, and it takes no more than about b·log n responses.
func TestBisect(t *testing.T) {
	for seed := range uint64(60) {
		b := newBench(t, seed)
		n := 1 + b.rnd.IntN(300)
		s, bad := set{}, map[string]bool{}
		s.put(listenerRes(t, "l", "1"))
		s.put(clusterRes(t, "good", "1"))
		for i := range n {
			name, content := fmt.Sprintf("s%d", i), "ok"
			if b.rnd.IntN(n) < 4 {
				content, bad[name] = "BAD", true
			}
			s.put(scopeRes(t, name, "good", content))
		}
		b.book.Update(b.diff(s, true))
		b.connect()
		b.settle()
		var refused []string
		for _, f := range b.book.Refused() {
			refused = append(refused, f.Name.Name)
		}
		if want := slices.Sorted(maps.Keys(bad)); !slices.Equal(refused, want) {
			t.Fatalf("seed %d: refused %q, want %q", seed, refused, want)
		}
		if len(b.envoy.scopes) != n-len(bad) {
			t.Fatalf("seed %d: %d of %d scopes in use, %d bad", seed, len(b.envoy.scopes), n, len(bad))
		}
		most := 12 + 2*len(bad)*(2+int(math.Ceil(math.Log2(float64(n)))))
		if b.envoy.responses > most {
			t.Errorf("seed %d: %d responses for %d scopes, %d bad; want at most %d", seed, b.envoy.responses, n, len(bad), most)
		}
		// Nothing is sent again unchanged.
		b.sent = nil
		s.put(scopeRes(t, "more", "good", "ok"))
		b.book.Update(b.diff(s, false))
		b.settle()
		if want := []string{"scope more"}; !slices.Equal(b.sent, want) {
			t.Fatalf("seed %d: sent %q, want %q", seed, b.sent, want)
		}
	}
}

// TestAnyHistory: whatever is updated, superseded, refused, and whenever Envoy or its
// connection ends, Envoy ends up with what is wanted or, where that is bad, with what
// was last good, and on the way nothing led to what was not there.
func TestAnyHistory(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		h := &history{bench: newBench(t, seed), want: set{}, good: map[resource.Name]bool{}}
		for range 25 {
			h.act()
		}
		h.check(seed)
	}
}

type history struct {
	*bench
	want set
	open bool
	good map[resource.Name]bool // a good content was committed, and it was not removed since
}

func (h *history) act() {
	switch h.rnd.IntN(10) {
	case 0:
		h.connect() // the connection was lost
		h.open = true
	case 1:
		excused := h.envoy.excused
		h.envoy = newModel() // Envoy was restarted
		h.envoy.excused = excused
		h.connect()
		h.open = true
	case 2:
		h.restart()
	default:
		h.change()
	}
	// Some of what is under way arrives, or all.
	if h.rnd.IntN(2) == 0 {
		for range h.rnd.IntN(12) {
			h.step()
		}
		return
	}
	if h.open && h.book.loaded {
		h.finish()
	}
}

func (h *history) finish() {
	h.settle()
	for n := range h.good {
		if h.image.Resources[n] == nil {
			delete(h.good, n)
		}
	}
	for n, r := range h.image.Resources {
		k, _ := kind.Of(n.TypeURL)
		read := h.book.kinds[k].entries[n.Name].live == r // Envoy had a reason to read it
		if read && !strings.Contains(string(r.Payload), "BAD") {
			h.good[n] = true
		}
	}
}

// restart is that of our own process: what was committed is left.
func (h *history) restart() {
	h.book = New(fmt.Sprintf("e%d", h.rnd.Uint64()))
	if !h.image.IsZero() {
		h.book.Restore(h.image)
	}
	h.want = set(maps.Clone(h.image.Resources))
	h.excuse()
	if h.open {
		h.connect()
	}
}

func (h *history) change() {
	t := h.t
	content := func(riskOf int) string {
		switch h.rnd.IntN(riskOf * 2) {
		case 0:
			return "BAD"
		case 1:
			return "BADLY"
		}
		return fmt.Sprintf("v%d", h.rnd.IntN(3))
	}
	for range 1 + h.rnd.IntN(5) {
		i := h.rnd.IntN(6)
		switch h.rnd.IntN(8) {
		case 0:
			h.want.put(clusterRes(t, fmt.Sprintf("good%d", i), fmt.Sprintf("v%d", h.rnd.IntN(3))))
		case 1:
			h.want.put(clusterRes(t, fmt.Sprintf("risky%d", i), content(3)))
		case 2:
			h.want.put(endpointsRes(t, fmt.Sprintf("good%d", i), content(4)))
		case 3:
			h.want.put(listenerRes(t, fmt.Sprintf("l%d", i%3), content(6)))
		case 4:
			delete(h.want, resource.Name{TypeURL: kind.Listeners.TypeURL(), Name: fmt.Sprintf("l%d", i%3)})
		case 5:
			delete(h.want, resource.Name{TypeURL: kind.Scopes.TypeURL(), Name: fmt.Sprintf("s%d", i)})
		default:
			h.want.put(scopeRes(t, fmt.Sprintf("s%d", i), fmt.Sprintf("good%d", h.rnd.IntN(6)), content(4)))
		}
	}
	// The controller sends no scope that leads nowhere, and now and then tidies up.
	used := map[string]bool{}
	for _, n := range h.want.names() {
		r := h.want[n]
		if n.TypeURL != kind.Scopes.TypeURL() {
			continue
		}
		c := clusterOf(t, r)
		used[c] = true
		if h.want[resource.Name{TypeURL: kind.Clusters.TypeURL(), Name: c}] == nil {
			h.want.put(clusterRes(t, c, "v0"))
		}
	}
	for _, n := range h.want.names() {
		if n.TypeURL == kind.Clusters.TypeURL() && !used[n.Name] && h.rnd.IntN(2) == 0 {
			delete(h.want, n)
		}
	}
	for n := range h.good {
		if h.want[n] == nil {
			delete(h.good, n)
		}
	}
	h.excuse()
	h.book.Update(h.diff(h.want, h.rnd.IntN(3) == 0))
}

// excuse: a scope that is bad runs what was good before, which may lead to a cluster
// that is not wanted any more.
func (h *history) excuse() {
	if len(h.down) == 0 { // else it may be on its way
		h.envoy.excused = map[string]bool{}
	}
	for n, r := range h.want {
		if n.TypeURL == kind.Scopes.TypeURL() && strings.Contains(string(r.Payload), "BAD") {
			h.envoy.excused[n.Name] = true
		}
	}
}

func clusterOf(t *testing.T, r *resource.Resource) string {
	var s routev3.ScopedRouteConfiguration
	if err := proto.Unmarshal(r.Payload, &s); err != nil {
		t.Fatal(err)
	}
	return s.GetRouteConfiguration().GetVirtualHosts()[0].GetRoutes()[0].GetRoute().GetCluster()
}

func (h *history) check(seed uint64) {
	h.t.Helper()
	if !h.book.loaded {
		h.book.Update(resource.Update{Full: true})
		h.want = set{}
	}
	h.connect()
	h.finish()
	live := map[kind.Kind]map[string]string{kind.Clusters: {}, kind.Listeners: h.envoy.listeners, kind.Scopes: {}}
	for n, c := range h.envoy.clusters {
		live[kind.Clusters][n] = c.content
		if !c.warm {
			h.t.Fatalf("seed %d: cluster %s is still warming", seed, n)
		}
	}
	for n := range h.envoy.scopes {
		live[kind.Scopes][n] = h.envoy.known[n]
	}
	if len(h.envoy.listeners) == 0 {
		delete(live, kind.Scopes)
	}
	refused := map[resource.Name]bool{}
	for _, f := range h.book.Refused() {
		refused[f.Name] = true
	}
	for k, in := range live {
		for n := range in {
			if h.want[resource.Name{TypeURL: k.TypeURL(), Name: n}] == nil {
				h.t.Fatalf("seed %d: %s %s was not removed; sent %q", seed, k, n, h.sent)
			}
		}
	}
	for n, r := range h.want {
		k, _ := kind.Of(n.TypeURL)
		in, ok := live[k]
		if !ok {
			continue
		}
		bad := strings.Contains(string(r.Payload), "BAD")
		if bad != refused[n] {
			h.t.Fatalf("seed %d: %s: refused %v, bad %v", seed, n, refused[n], bad)
		}
		switch {
		case !bad && !strings.HasPrefix(in[n.Name], string(r.Payload)): // a mark may follow
			h.t.Fatalf("seed %d: %s: Envoy has %q, want %q; sent %q", seed, n, in[n.Name], r.Payload, h.sent)
		case bad && h.good[n] && in[n.Name] == "":
			h.t.Fatalf("seed %d: %s: what was good is gone; sent %q", seed, n, h.sent)
		}
	}
}
