package delta

import (
	"slices"
	"strings"
	"testing"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"

	"aether.io/aether/internal/resource"
)

// ways of a listener of the table T to its scopes.
const (
	single  = "T|*"
	perHost = "T|%REQ(:AUTHORITY)%"
)

// cutWorld is a listener of the table T that leads to scopes one way, and the scopes.
func cutWorld(t *testing.T, way string, scopes ...string) set {
	s := set{}
	s.put(clusterRes(t, "a", "1"))
	s.put(endpointsRes(t, "a", "1"))
	s.put(listenerRes(t, "l", way))
	for _, n := range scopes {
		s.put(scopeRes(t, n, "a", "1"))
	}
	return s
}

// badListener is one that Envoy refuses.
func badListener(t *testing.T, way string) *resource.Resource {
	r := listenerRes(t, "l", way)
	var m listenerv3.Listener
	if err := proto.Unmarshal(r.Payload, &m); err != nil {
		t.Fatal(err)
	}
	m.FilterChains[0].Name = "BAD"
	return mustNew(t, "l", &m)
}

// removed lists the scopes that were removed since the last call.
func (b *bench) removed() []string {
	var out []string
	for _, line := range b.sent {
		names, ok := strings.CutPrefix(line, "scope ")
		if !ok {
			continue
		}
		for n := range strings.SplitSeq(names, ",") {
			if gone, ok := strings.CutPrefix(n, "-"); ok {
				out = append(out, gone)
			}
		}
	}
	b.sent = nil
	return out
}

func (b *bench) goTo(s set) {
	b.t.Helper()
	b.book.Update(b.diff(s, false))
	b.settle()
}

func (b *bench) expect(what string, kept, removed []string) {
	b.t.Helper()
	if got := b.book.Kept(); !slices.Equal(got, kept) {
		b.t.Errorf("%s: kept %q, want %q", what, got, kept)
	}
	if got := b.removed(); !slices.Equal(got, removed) {
		b.t.Errorf("%s: removed %q, want %q", what, got, removed)
	}
}

func TestScopesOfATableThatIsCutAnotherWayAreKeptUntilTheyAreReleased(t *testing.T) {
	one := func() set { return cutWorld(t, single, "T|*") }
	many := func() set { return cutWorld(t, perHost, "T|*others", "T|a", "T|b") }
	for name, tt := range map[string]struct {
		from, to set
		kept     []string
	}{
		"one scope becomes many": {one(), many(), []string{"T|*"}},
		"many scopes become one": {many(), one(), []string{"T|*others", "T|a", "T|b"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			b.connect()
			b.goTo(tt.from)
			b.goTo(tt.to)
			b.expect("cut another way", tt.kept, nil)
			b.book.Release([]string{"T|c"})
			b.settle()
			b.expect("something else released", tt.kept, nil)
			due := b.book.Kept()
			b.book.Release(due)
			b.settle()
			b.expect("released", nil, tt.kept)
			b.book.Release(due)
			b.settle()
			b.expect("released twice", nil, nil)
		})
	}
}

func TestScopesThatAListenerLeadsToOrWhoseTableIsNoMoreGoAtOnce(t *testing.T) {
	all := cutWorld(t, perHost, "T|*others", "T|a", "T|b", "T|*:trial", "other")
	b := newBench(t, 1)
	b.connect()
	b.goTo(all)
	b.goTo(cutWorld(t, perHost, "T|*others", "T|a"))
	b.expect("a host and what no request finds are gone", nil, []string{"T|*:trial", "T|b", "other"})
	elsewhere := cutWorld(t, "U|*", "U|*")
	b.goTo(elsewhere)
	b.expect("the table is gone", nil, []string{"T|*others", "T|a"})
}

func TestAKeptScopeThatIsWantedAgainIsNotRemoved(t *testing.T) {
	b := newBench(t, 1)
	b.connect()
	b.goTo(cutWorld(t, single, "T|*"))
	b.goTo(cutWorld(t, perHost, "T|*others", "T|a"))
	due := b.book.Kept()
	b.goTo(cutWorld(t, single, "T|*"))
	b.expect("back", []string{"T|*others", "T|a"}, nil)
	b.book.Release(due)
	b.settle()
	b.expect("what was due is wanted", []string{"T|*others", "T|a"}, nil)
	b.goTo(cutWorld(t, perHost, "T|*others"))
	b.expect("and there again, without a host", []string{"T|*"}, []string{"T|a"})
}

func TestKeptScopesGoWithTheirTable(t *testing.T) {
	b := newBench(t, 1)
	b.connect()
	b.goTo(cutWorld(t, single, "T|*"))
	b.goTo(cutWorld(t, perHost, "T|*others", "T|a"))
	b.goTo(cutWorld(t, "U|*", "U|*"))
	b.expect("the table is gone", nil, []string{"T|*", "T|*others", "T|a"})
}

func TestScopesThatARunningListenerLeadsToAreKeptWhateverIsReleased(t *testing.T) {
	b := newBench(t, 1)
	b.connect()
	b.goTo(cutWorld(t, single, "T|*"))
	refused := cutWorld(t, perHost, "T|*others", "T|a")
	refused.put(badListener(t, perHost))
	b.goTo(refused)
	b.expect("the new listener is refused", []string{"T|*"}, nil)
	b.book.Release(b.book.Kept())
	b.settle()
	b.expect("released", []string{"T|*"}, nil)
	b.goTo(cutWorld(t, perHost, "T|*others", "T|a"))
	b.book.Release(b.book.Kept())
	b.settle()
	b.expect("released when it is accepted", nil, []string{"T|*"})
}

func TestScopesAreKeptAnewWhenEnvoyConnectsAgain(t *testing.T) {
	b := newBench(t, 1)
	b.connect()
	b.goTo(cutWorld(t, single, "T|*"))
	b.goTo(cutWorld(t, perHost, "T|*others", "T|a"))
	b.connect()
	b.settle()
	b.expect("connected again", []string{"T|*"}, nil)
	b.book.Release(b.book.Kept())
	b.settle()
	b.expect("released", nil, []string{"T|*"})
}
