// Package resource is the currency between the routing graph and Envoy: named,
// encoded, hashed resources, and the versions of sets of them. It does not know
// what is inside a payload.
package resource

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"aether.io/aether/internal/object"
)

// Name identifies a resource within a scope.
type Name struct {
	TypeURL string `json:"typeUrl"` // "type.googleapis.com/…"
	Name    string `json:"name"`
}

// Compare orders names by type, then name.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.TypeURL, o.TypeURL), cmp.Compare(n.Name, o.Name))
}

// String is the type's short name and the name, as a person would say it.
func (n Name) String() string {
	short := n.TypeURL
	if i := lastDot(short); i >= 0 {
		short = short[i+1:]
	}
	return short + " " + n.Name
}

func lastDot(s string) int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] == '.' {
			return i
		}
	}
	return -1
}

// Hash is the SHA-256 of a whole payload.
type Hash [sha256.Size]byte

// String is lower-case hexadecimal.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText is String, so that JSON has it too.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	data, err := hex.DecodeString(string(text))
	if err != nil || len(data) != len(h) {
		return fmt.Errorf("read hash %q: want %d hexadecimal digits", text, 2*len(h))
	}
	copy(h[:], data)
	return nil
}

// Resource is one encoded resource. It is immutable: it is shared between scopes,
// subscribers and versions and is never encoded twice.
type Resource struct {
	Name
	Hash    Hash
	Payload []byte       // the message itself, deterministically encoded
	Origin  []object.Key // the objects it was made from, sorted
}

// New encodes m under name. Equal messages give equal bytes.
func New(name string, m proto.Message, origin ...object.Key) (*Resource, error) {
	payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %s %s: %w", m.ProtoReflect().Descriptor().Name(), name, err)
	}
	origin = slices.Clone(origin)
	slices.SortFunc(origin, object.Key.Compare)
	return &Resource{
		Name:    Name{TypeURL: "type.googleapis.com/" + string(m.ProtoReflect().Descriptor().FullName()), Name: name},
		Hash:    sha256.Sum256(payload),
		Payload: payload,
		Origin:  slices.Compact(origin),
	}, nil
}

// Any wraps the payload without copying it.
func (r *Resource) Any() *anypb.Any { return &anypb.Any{TypeUrl: r.TypeURL, Value: r.Payload} }

// Delta is what became different in one scope. Both lists are sorted by name and
// name no resource twice.
type Delta struct {
	Changed []*Resource
	Removed []Name
}

// IsZero reports whether nothing differs.
func (d Delta) IsZero() bool { return len(d.Changed) == 0 && len(d.Removed) == 0 }

// Refusal says that Envoy did not accept a resource, and why.
type Refusal struct {
	Name
	Hash   Hash   `json:"hash"`   // of the content that was refused
	Detail string `json:"detail"` // what Envoy said
}

// Set is the version of a set of resources: independent of order, kept incrementally.
// The zero Set is the version of no resources.
type Set struct {
	sum [4]uint64 // sum modulo 2^256 of each member's digest, little endian limbs
}

// Add puts a member in.
func (s *Set) Add(n Name, h Hash) {
	d := digest(n, h)
	var c uint64
	for i := range s.sum {
		s.sum[i], c = bits.Add64(s.sum[i], d[i], c)
	}
}

// Remove takes out a member that was added.
func (s *Set) Remove(n Name, h Hash) {
	d := digest(n, h)
	var b uint64
	for i := range s.sum {
		s.sum[i], b = bits.Sub64(s.sum[i], d[i], b)
	}
}

// Version is the set's version: 64 lower-case hexadecimal digits.
func (s Set) Version() string {
	return fmt.Sprintf("%016x%016x%016x%016x", s.sum[3], s.sum[2], s.sum[1], s.sum[0])
}

func digest(n Name, h Hash) [4]uint64 {
	var b bytes.Buffer
	b.WriteString(n.TypeURL)
	b.WriteByte(0)
	b.WriteString(n.Name)
	b.WriteByte(0)
	b.Write(h[:])
	d := sha256.Sum256(b.Bytes())
	var w [4]uint64
	for i := range w {
		for j := range 8 {
			w[i] |= uint64(d[i*8+j]) << (8 * j)
		}
	}
	return w
}
