package discovery_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
)

func res(t testing.TB, name string, size int, origin ...object.Key) *resource.Resource {
	t.Helper()
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(size), byte(len(name))})
	_, _ = r.Read(b)
	out, err := resource.New(name, wrapperspb.Bytes(b), origin...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func send(t testing.TB, s snapshot.Snapshot) []*discoveryv1.Snapshot {
	t.Helper()
	var out []*discoveryv1.Snapshot
	for m := range discovery.Chunks(s) {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > discovery.MaxMessage {
			t.Errorf("chunk %d has %d bytes", len(out), len(b))
		}
		var back discoveryv1.ServerMessage
		if err := proto.Unmarshal(b, &back); err != nil {
			t.Fatal(err)
		}
		out = append(out, back.GetSnapshot())
	}
	return out
}

func receive(a *discovery.Assembler, chunks []*discoveryv1.Snapshot) (snapshot.Snapshot, error) {
	for i, c := range chunks {
		s, done, err := a.Add(c)
		switch {
		case err != nil:
			return s, err
		case done && i == len(chunks)-1:
			return s, nil
		case done:
			return s, errors.New("done before the last chunk")
		}
	}
	return snapshot.Snapshot{}, errors.New("not done with the last chunk")
}

func TestWhatIsCutIsAssembled(t *testing.T) {
	gw := object.Key{Kind: object.Gateway, Namespace: "infra", Name: "edge"}
	many := make([]*resource.Resource, 0, 300)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		size := rng.IntN(200)
		if rng.IntN(60) == 0 {
			size = rng.IntN(3 << 20)
		}
		many = append(many, res(t, fmt.Sprintf("r%04d", i), size, gw))
	}
	removed := make([]resource.Name, 0, 40_000)
	for i := range 40_000 {
		removed = append(removed, resource.Name{TypeURL: "type.googleapis.com/x.Y", Name: fmt.Sprintf("gone-%06d", i)})
	}
	mark := watermark.Mark{Epoch: 3, Positions: map[string]uint64{"gateways": 17}}
	tests := map[string]resource.Update{
		"nothing":                                {Version: "v", Mark: mark},
		"a full world of many sizes":             {Version: "v", Mark: mark, Full: true, Changed: many},
		"removals that take several chunks":      {Version: "v", Mark: mark, Changed: many[:1], Removed: removed},
		"a resource of many chunks":              {Version: "v", Changed: []*resource.Resource{res(t, "giant", 5<<20+13)}},
		"resources about as large as a chunk":    {Version: "v", Changed: around(t, discovery.MaxMessage)},
		"an empty resource between large ones":   {Version: "v", Changed: []*resource.Resource{res(t, "a", 2<<20), res(t, "b", 0), res(t, "c", 2<<20)}},
		"a position far along in many resources": {Version: "v", Mark: long(), Changed: many[:3]},
	}
	for name, u := range tests {
		t.Run(name, func(t *testing.T) {
			in := snapshot.Snapshot{Nonce: 7, Update: u}
			out, err := receive(&discovery.Assembler{}, send(t, in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(in, out, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(resource.Resource{}, "Payload")); diff != "" {
				t.Fatalf("(-sent +assembled):\n%.2000s", diff)
			}
			for i, r := range out.Changed { // apart: cmp is slow on large slices
				if !bytes.Equal(r.Payload, in.Changed[i].Payload) {
					t.Errorf("the payload of %s arrived different", r.Name)
				}
			}
		})
	}
}

func around(t *testing.T, size int) []*resource.Resource {
	var out []*resource.Resource
	for d := -160; d <= 20; d += 20 {
		out = append(out, res(t, fmt.Sprintf("r%05d", 1000+d), size+d))
	}
	return out
}

func long() watermark.Mark {
	m := watermark.Mark{Positions: map[string]uint64{}}
	for i := range 1000 {
		m.Positions[fmt.Sprintf("kind-%d", i)] = 1 << 60
	}
	return m
}

func TestPayloadsAreNotCopied(t *testing.T) {
	r := res(t, "a", 100)
	for m := range discovery.Chunks(snapshot.Snapshot{Nonce: 1, Update: resource.Update{Version: "v", Changed: []*resource.Resource{r}}}) {
		if got := m.GetSnapshot().GetResources()[0].GetPayload(); &got[0] != &r.Payload[0] {
			t.Error("the payload was copied")
		}
	}
}

func TestOriginsAreBoundedOnTheWire(t *testing.T) {
	var keys []object.Key
	for i := range 50_000 {
		keys = append(keys, object.Key{Kind: object.HTTPRoute, Namespace: "a-namespace", Name: fmt.Sprintf("a-route-%06d", i)})
	}
	out, err := receive(&discovery.Assembler{}, send(t, snapshot.Snapshot{Nonce: 1, Update: resource.Update{
		Version: "v", Changed: []*resource.Resource{res(t, "a", 10, keys...)},
	}}))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(out.Changed[0].Origin); got == 0 || got == len(keys) {
		t.Errorf("%d origins arrived, want some and not all of %d", got, len(keys))
	}
}

func TestAssemblerRefusesWhatNoServerSends(t *testing.T) {
	good := func() []*discoveryv1.Snapshot {
		return send(t, snapshot.Snapshot{Nonce: 2, Update: resource.Update{
			Version: "v", Changed: []*resource.Resource{res(t, "a", 10), res(t, "b", 3<<20)}, Removed: []resource.Name{{TypeURL: "t", Name: "gone"}},
		}})
	}
	tests := map[string]func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot{
		"a payload that is not of its hash": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[0].Resources[0].Payload[3] ^= 1
			return c
		},
		"a continued payload that is not of its hash": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[2].Resources[0].Payload[3] ^= 1
			return c
		},
		"a hash of another length": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[0].Resources[0].Hash = c[0].Resources[0].Hash[:20]
			return c
		},
		"a chunk of another version": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[1].Version = "w"
			return c
		},
		"a chunk with another nonce": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[1].Nonce++
			return c
		},
		"a chunk that changes its mind about full": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[1].Full = true
			return c
		},
		"no version": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			for _, m := range c {
				m.Version = ""
			}
			return c
		},
		"no nonce": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			for _, m := range c {
				m.Nonce = 0
			}
			return c
		},
		"a nonce that was used before": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			return append(c, c...)
		},
		"a resource without a name": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[0].Resources[0].Name = ""
			return c
		},
		"one name twice": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[0].Resources = append(c[0].Resources, c[0].Resources[0])
			return c
		},
		"one name changed and removed": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			r := c[0].Resources[0]
			last := c[len(c)-1]
			last.Removed = append(last.Removed, &discoveryv1.ResourceName{TypeUrl: r.TypeUrl, Name: r.Name})
			return c
		},
		"a full snapshot that removes": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			for _, m := range c {
				m.Full = true
			}
			return c
		},
		"another resource within one that goes on": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[2].Resources[0].Name = "z"
			return c
		},
		"an end within a resource": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[1].Last = true
			return c
		},
		"a part without content": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			c[2].Resources[0].Payload = nil
			return c
		},
		"a chunk without content": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			return append([]*discoveryv1.Snapshot{{Version: "v", Nonce: 2}}, c...)
		},
		"more than the limit": func(c []*discoveryv1.Snapshot) []*discoveryv1.Snapshot {
			m := proto.Clone(c[1]).(*discoveryv1.Snapshot)
			return slices.Insert(c, 2, m, m, m)
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := receive(&discovery.Assembler{Limit: 5 << 20}, good()); err != nil {
				t.Fatalf("unspoilt: %v", err)
			}
			a := discovery.Assembler{Limit: 5 << 20}
			var err error
			for _, c := range spoil(good()) {
				if _, _, err = a.Add(c); err != nil {
					break
				}
			}
			if !errors.Is(err, discovery.ErrProtocol) {
				t.Errorf("error %v, want a protocol violation", err)
			}
		})
	}
}

func TestInventory(t *testing.T) {
	var refs []snapshot.Ref
	for i := range 30_000 {
		refs = append(refs, snapshot.Ref{Name: resource.Name{TypeURL: "type.googleapis.com/a.B", Name: fmt.Sprintf("%s-%d", strings.Repeat("n", i%200), i)}, Hash: resource.Hash{byte(i)}})
	}
	var a discovery.InventoryAssembler
	var got []snapshot.Ref
	chunks := 0
	for m := range discovery.InventoryChunks(slices.Values(refs)) {
		chunks++
		if n := proto.Size(m); n > discovery.MaxMessage {
			t.Errorf("chunk of %d bytes", n)
		}
		out, done, err := a.Add(m.GetInventory())
		if err != nil {
			t.Fatal(err)
		}
		if done {
			got = out
		}
	}
	if !slices.Equal(refs, got) || chunks < 2 { // cmp is slow on large slices
		t.Errorf("%d references of %d arrived equal in %d chunks", len(got), len(refs), chunks)
	}

	ref := &discoveryv1.ResourceRef{TypeUrl: "t", Name: "n", Hash: make([]byte, 32)}
	bad := map[string]*discoveryv1.Inventory{
		"one name twice":       {Resources: []*discoveryv1.ResourceRef{ref, ref}, Last: true},
		"a chunk without end":  {},
		"a hash of 3 bytes":    {Resources: []*discoveryv1.ResourceRef{{TypeUrl: "t", Name: "n", Hash: []byte("abc")}}, Last: true},
		"more than the limit":  {Resources: []*discoveryv1.ResourceRef{{TypeUrl: "t", Name: strings.Repeat("n", 300), Hash: make([]byte, 32)}}, Last: true},
		"a name without types": {Resources: []*discoveryv1.ResourceRef{{Name: "n", Hash: make([]byte, 32)}}, Last: true},
	}
	for name, m := range bad {
		t.Run(name, func(t *testing.T) {
			a := discovery.InventoryAssembler{Limit: 200}
			if _, _, err := a.Add(m); !errors.Is(err, discovery.ErrProtocol) {
				t.Errorf("error %v, want a protocol violation", err)
			}
		})
	}
}

func TestScopes(t *testing.T) {
	gw, err := scope.Gateway("ns", "gw")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []scope.Scope{scope.SharedPool(), gw} {
		if got, err := discovery.ScopeFromProto(discovery.ScopeToProto(s)); err != nil || got != s {
			t.Errorf("%s came back as %s, %v", s, got, err)
		}
	}
	bad := map[string]*discoveryv1.Scope{
		"absent":            nil,
		"zero":              discovery.ScopeToProto(scope.Scope{}),
		"empty":             {},
		"an unnamed one":    {Scope: &discoveryv1.Scope_Gateway_{Gateway: &discoveryv1.Scope_Gateway{Namespace: "ns"}}},
		"without namespace": {Scope: &discoveryv1.Scope_Gateway_{Gateway: &discoveryv1.Scope_Gateway{Name: "gw"}}},
	}
	for name, m := range bad {
		t.Run(name, func(t *testing.T) {
			if s, err := discovery.ScopeFromProto(m); !errors.Is(err, scope.ErrInvalid) {
				t.Errorf("gives %s, %v; want it refused", s, err)
			}
		})
	}
}

func TestAnswersAndStatusComeBack(t *testing.T) {
	n := resource.Name{TypeURL: "t", Name: "n"}
	ack := snapshot.Answer{Nonce: 4, Version: "v", Outcome: resource.Outcome{Pending: []resource.Name{n}}}
	if got, err := discovery.AckFromProto(discovery.AnswerToProto(ack).GetAck()); err != nil || !cmp.Equal(got, ack) {
		t.Errorf("ack: %v %s", err, cmp.Diff(ack, got))
	}
	nack := ack
	nack.Refused = []resource.Refusal{{Name: n, Detail: "no"}}
	if got, err := discovery.NackFromProto(discovery.AnswerToProto(nack).GetNack()); err != nil || !cmp.Equal(got, nack) {
		t.Errorf("nack: %v %s", err, cmp.Diff(nack, got))
	}
	if _, err := discovery.NackFromProto(&discoveryv1.Nack{Nonce: 1, Version: "v"}); !errors.Is(err, discovery.ErrProtocol) {
		t.Errorf("a nack that names nothing: error %v", err)
	}
	st := fleet.Status{
		SVIDSerial: "1f", IssuerKeyID: "aa", SVIDNotAfter: time.Unix(9, 0).UTC(), MountedRoots: []string{"x"}, PushedRoots: []string{"x"},
		Checks: []fleet.Check{{Name: "envoy", State: "Ready", Reason: "r", Since: time.Unix(3, 0).UTC()}},
	}
	ports, got, err := discovery.StatusFromProto(discovery.StatusToProto([]uint32{443, 80, 443}, st))
	if err != nil || !slices.Equal(ports, []uint32{80, 443}) || !cmp.Equal(st, got) {
		t.Errorf("status: ports %v, %v %s", ports, err, cmp.Diff(st, got))
	}
	if _, _, err := discovery.StatusFromProto(&discoveryv1.NodeStatus{BoundPorts: []uint32{80, 70000}}); !errors.Is(err, discovery.ErrProtocol) {
		t.Errorf("port 70000: error %v", err)
	}
	refused := []resource.Refusal{{Name: n, Hash: resource.Hash{7}}}
	have, err := discovery.SubscribeHave(&discoveryv1.Subscribe{HaveVersion: "v", Refused: discovery.RefusedToProto(refused)})
	if err != nil || !cmp.Equal(have, snapshot.Have{Version: "v", Refused: refused}) {
		t.Errorf("have: %v %+v", err, have)
	}
}

// FuzzAssembler: whatever arrives, it is refused or its hashes hold; nothing panics.
func FuzzAssembler(f *testing.F) {
	for _, c := range send(f, snapshot.Snapshot{Nonce: 1, Update: resource.Update{Version: "v", Changed: []*resource.Resource{res(f, "a", 10)}}}) {
		b, err := proto.Marshal(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a := discovery.Assembler{Limit: 1 << 16}
		for _, b := range [][]byte{one, two} {
			var m discoveryv1.Snapshot
			if proto.Unmarshal(b, &m) != nil {
				return
			}
			s, done, err := a.Add(&m)
			if err != nil {
				return
			}
			if done && (s.Version == "" || s.Nonce == 0) {
				t.Errorf("assembled %+v", s)
			}
		}
	})
}
