package discovery

import (
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

const (
	// maxOrigin bounds the text of a resource's origins on the wire. They are there
	// for people who look at a proxy; the controller knows them all.
	maxOrigin = 64 << 10
	// slack covers the oneof wrapper, the flags and the growth of length prefixes.
	slack = 64
)

// Chunks cuts a snapshot into messages of at most MaxMessage bytes, the last of
// which is marked. Payloads are slices of the resources', not copies; one chunk is
// made at a time, as it is asked for. A resource that fits into a message is never
// split; a larger one begins a message of its own and is continued.
//
// Names are assumed to be far shorter than a message.
func Chunks(s snapshot.Snapshot) iter.Seq[*discoveryv1.ServerMessage] {
	return func(yield func(*discoveryv1.ServerMessage) bool) {
		c := newCutter(s)
		for _, r := range s.Changed {
			if !c.resource(r, yield) {
				return
			}
		}
		for _, n := range s.Removed {
			m := NameToProto(n)
			if !c.reserve(fieldSize(proto.Size(m)), yield) {
				return
			}
			c.chunk.Removed = append(c.chunk.Removed, m)
		}
		c.chunk.Last = true
		yield(c.message())
	}
}

// cutter fills one chunk after the other.
type cutter struct {
	head  *discoveryv1.Snapshot // what every chunk repeats
	first int                   // room for content in a fresh chunk
	chunk *discoveryv1.Snapshot
	room  int // left in chunk
}

func newCutter(s snapshot.Snapshot) *cutter {
	c := &cutter{head: &discoveryv1.Snapshot{
		Version: s.Version, Watermark: MarkToProto(s.Mark), Nonce: s.Nonce, Full: s.Full,
	}}
	c.first = MaxMessage - proto.Size(c.head) - slack
	c.fresh()
	return c
}

func (c *cutter) fresh() {
	c.chunk = &discoveryv1.Snapshot{
		Version: c.head.GetVersion(), Watermark: c.head.GetWatermark(), Nonce: c.head.GetNonce(), Full: c.head.GetFull(),
	}
	c.room = c.first
}

func (c *cutter) message() *discoveryv1.ServerMessage {
	return &discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Snapshot{Snapshot: c.chunk}}
}

// reserve takes n bytes, of a fresh chunk if they are not left in this one.
func (c *cutter) reserve(n int, yield func(*discoveryv1.ServerMessage) bool) bool {
	if n > c.room && c.room < c.first {
		if !yield(c.message()) {
			return false
		}
		c.fresh()
	}
	c.room -= n
	return true
}

func (c *cutter) resource(r *resource.Resource, yield func(*discoveryv1.ServerMessage) bool) bool {
	m := &discoveryv1.Resource{TypeUrl: r.TypeURL, Name: r.Name.Name, Hash: r.Hash[:], Origin: origins(r)}
	frame := proto.Size(m) + slack
	rest := r.Payload
	for {
		part := min(len(rest), max(c.first-frame, 1))
		if !c.reserve(frame+part, yield) {
			return false
		}
		m.Payload, rest = rest[:part:part], rest[part:]
		m.More = len(rest) > 0
		c.chunk.Resources = append(c.chunk.Resources, m)
		if !m.GetMore() {
			return true
		}
		m = &discoveryv1.Resource{TypeUrl: r.TypeURL, Name: r.Name.Name, Hash: r.Hash[:]}
	}
}

func origins(r *resource.Resource) []string {
	out := make([]string, 0, len(r.Origin))
	room := maxOrigin
	for _, k := range r.Origin {
		s := k.String()
		if room -= fieldSize(len(s)); room < 0 {
			break
		}
		out = append(out, s)
	}
	return out
}

// InventoryChunks cuts the list of what a client was sent into messages, the last
// of which is marked.
func InventoryChunks(refs iter.Seq[snapshot.Ref]) iter.Seq[*discoveryv1.ClientMessage] {
	return func(yield func(*discoveryv1.ClientMessage) bool) {
		chunk, size := &discoveryv1.Inventory{}, slack
		message := func() *discoveryv1.ClientMessage {
			return &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Inventory{Inventory: chunk}}
		}
		for r := range refs {
			m := &discoveryv1.ResourceRef{TypeUrl: r.TypeURL, Name: r.Name.Name, Hash: r.Hash[:]}
			n := fieldSize(proto.Size(m))
			if size+n > MaxMessage && len(chunk.GetResources()) > 0 {
				if !yield(message()) {
					return
				}
				chunk, size = &discoveryv1.Inventory{}, slack
			}
			size += n
			chunk.Resources = append(chunk.Resources, m)
		}
		chunk.Last = true
		yield(message())
	}
}

// fieldSize is what a length-delimited field of n bytes takes, with a one-byte tag.
func fieldSize(n int) int { return 1 + protowire.SizeBytes(n) }
