package discovery

import (
	"crypto/sha256"
	"fmt"
	"slices"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

const (
	// DefaultSnapshotLimit bounds the bytes of payloads and names of one snapshot under assembly.
	DefaultSnapshotLimit = 1 << 30
	// DefaultInventoryLimit bounds the bytes of one inventory under assembly, some
	// half a million resources.
	DefaultInventoryLimit = 64 << 20
)

// Assembler puts the chunks of snapshots together, on the client's side. It is fed
// every Snapshot message of one stream and belongs to one goroutine. The zero
// Assembler is ready. After an error it is of no more use, nor is its stream.
type Assembler struct {
	Limit int // bytes of payloads and names of one snapshot; 0: DefaultSnapshotLimit

	nonce uint64 // of the newest snapshot begun
	open  bool   // chunks of it are outstanding
	snap  snapshot.Snapshot
	seen  map[resource.Name]struct{}
	part  *resource.Resource // being continued
	size  int
}

// Add takes one chunk. With the last one of a snapshot it returns the snapshot, of
// which every hash has been checked against its payload, no name occurs twice and
// both lists are sorted, and done. The version is not checked: that takes what is
// held (snapshot.Holding). It returns an error that is ErrProtocol for anything that
// a correct server does not send. Payloads may share memory with the chunks.
func (a *Assembler) Add(m *discoveryv1.Snapshot) (s snapshot.Snapshot, done bool, err error) {
	if err := a.begin(m); err != nil {
		return snapshot.Snapshot{}, false, err
	}
	for _, r := range m.GetResources() {
		if err := a.resource(r); err != nil {
			return snapshot.Snapshot{}, false, fmt.Errorf("snapshot %d: %w", a.nonce, err)
		}
	}
	for _, n := range m.GetRemoved() {
		if err := a.removed(n); err != nil {
			return snapshot.Snapshot{}, false, fmt.Errorf("snapshot %d: %w", a.nonce, err)
		}
	}
	if !m.GetLast() {
		if len(m.GetResources())+len(m.GetRemoved()) == 0 {
			return snapshot.Snapshot{}, false, fmt.Errorf("snapshot %d: %w: empty chunk", a.nonce, ErrProtocol)
		}
		return snapshot.Snapshot{}, false, nil
	}
	if a.part != nil {
		return snapshot.Snapshot{}, false, fmt.Errorf("snapshot %d: %w: ends within %s", a.nonce, ErrProtocol, a.part.Name)
	}
	s = a.snap
	slices.SortFunc(s.Changed, func(x, y *resource.Resource) int { return x.Compare(y.Name) })
	slices.SortFunc(s.Removed, resource.Name.Compare)
	a.open, a.snap, a.seen, a.size = false, snapshot.Snapshot{}, nil, 0
	return s, true, nil
}

func (a *Assembler) begin(m *discoveryv1.Snapshot) error {
	if a.open {
		if m.GetNonce() != a.nonce || m.GetVersion() != a.snap.Version || m.GetFull() != a.snap.Full {
			return fmt.Errorf("snapshot %d: %w: chunk of another snapshot (%d)", a.nonce, ErrProtocol, m.GetNonce())
		}
		return nil
	}
	if m.GetNonce() <= a.nonce {
		return fmt.Errorf("%w: snapshot %d after %d", ErrProtocol, m.GetNonce(), a.nonce)
	}
	if m.GetVersion() == "" {
		return fmt.Errorf("snapshot %d: %w: no version", m.GetNonce(), ErrProtocol)
	}
	a.open, a.nonce, a.seen = true, m.GetNonce(), make(map[resource.Name]struct{})
	a.snap.Nonce, a.snap.Version, a.snap.Full = m.GetNonce(), m.GetVersion(), m.GetFull()
	a.snap.Mark = MarkFromProto(m.GetWatermark())
	return nil
}

func (a *Assembler) resource(m *discoveryv1.Resource) error {
	n, err := nameFrom(m.GetTypeUrl(), m.GetName())
	if err != nil {
		return err
	}
	h, err := hashFrom(m.GetHash())
	if err != nil {
		return fmt.Errorf("%s: %w", n, err)
	}
	if err := a.grow(len(m.GetPayload())); err != nil {
		return err
	}
	if m.GetMore() && len(m.GetPayload()) == 0 {
		return fmt.Errorf("%s: %w: empty part", n, ErrProtocol)
	}
	r := a.part
	if r == nil {
		if err := a.once(n); err != nil {
			return err
		}
		r = &resource.Resource{Name: n, Hash: h, Payload: m.GetPayload(), Origin: originFrom(m.GetOrigin())}
		if m.GetMore() { // parts to come are appended, so this must be a copy
			r.Payload = slices.Clone(m.GetPayload())
		}
	} else {
		if r.Name != n || r.Hash != h {
			return fmt.Errorf("%w: %s within %s", ErrProtocol, n, r.Name)
		}
		r.Payload = append(r.Payload, m.GetPayload()...)
	}
	if m.GetMore() {
		a.part = r
		return nil
	}
	a.part = nil
	if sha256.Sum256(r.Payload) != r.Hash {
		return fmt.Errorf("%s: %w: payload does not have its hash", n, ErrProtocol)
	}
	a.snap.Changed = append(a.snap.Changed, r)
	return nil
}

func (a *Assembler) removed(m *discoveryv1.ResourceName) error {
	n, err := nameFrom(m.GetTypeUrl(), m.GetName())
	if err != nil {
		return err
	}
	if a.snap.Full {
		return fmt.Errorf("%w: a full snapshot removes %s", ErrProtocol, n)
	}
	a.snap.Removed = append(a.snap.Removed, n)
	return a.once(n)
}

func (a *Assembler) grow(n int) error {
	limit := a.Limit
	if limit == 0 {
		limit = DefaultSnapshotLimit
	}
	if a.size += n; a.size > limit {
		return fmt.Errorf("%w: more than %d bytes", ErrProtocol, limit)
	}
	return nil
}

// once refuses a name that this snapshot has already named.
func (a *Assembler) once(n resource.Name) error {
	if err := a.grow(len(n.TypeURL) + len(n.Name)); err != nil {
		return err
	}
	if _, ok := a.seen[n]; ok {
		return fmt.Errorf("%w: %s twice", ErrProtocol, n)
	}
	a.seen[n] = struct{}{}
	return nil
}

// originFrom leaves out what is no object's name: origins are for people to read.
func originFrom(ss []string) []object.Key {
	var out []object.Key
	for _, s := range ss {
		if k, err := object.ParseKey(s); err == nil {
			out = append(out, k)
		}
	}
	return out
}

// InventoryAssembler puts the chunks of one inventory together, on the server's
// side. The zero InventoryAssembler is ready; it belongs to one goroutine.
type InventoryAssembler struct {
	Limit int // bytes; 0: DefaultInventoryLimit

	refs []snapshot.Ref
	seen map[resource.Name]struct{}
	size int
}

// Add takes one chunk and returns the whole list, and done, with the last. After
// that, or an error, it is ready for another inventory.
func (a *InventoryAssembler) Add(m *discoveryv1.Inventory) (refs []snapshot.Ref, done bool, err error) {
	refs, done, err = a.add(m)
	if done || err != nil {
		a.refs, a.seen, a.size = nil, nil, 0
	}
	return refs, done, err
}

func (a *InventoryAssembler) add(m *discoveryv1.Inventory) ([]snapshot.Ref, bool, error) {
	if a.seen == nil {
		a.seen = make(map[resource.Name]struct{})
	}
	limit := a.Limit
	if limit == 0 {
		limit = DefaultInventoryLimit
	}
	if len(m.GetResources()) == 0 && !m.GetLast() {
		return nil, false, fmt.Errorf("inventory: %w: empty chunk", ErrProtocol)
	}
	for _, p := range m.GetResources() {
		r, err := refFrom(p)
		if err != nil {
			return nil, false, fmt.Errorf("inventory: %w", err)
		}
		if _, ok := a.seen[r.Name]; ok {
			return nil, false, fmt.Errorf("inventory: %w: %s twice", ErrProtocol, r.Name)
		}
		if a.size += len(r.TypeURL) + len(r.Name.Name) + len(r.Hash); a.size > limit {
			return nil, false, fmt.Errorf("inventory: %w: more than %d bytes", ErrProtocol, limit)
		}
		a.seen[r.Name] = struct{}{}
		a.refs = append(a.refs, r)
	}
	return a.refs, m.GetLast(), nil
}
