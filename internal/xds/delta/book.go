// Package delta is the account of one Envoy: what it is to run, what it has been sent,
// what it accepted and refused, and what to send it next. It speaks the messages of the
// delta discovery protocol and nothing else: no socket, no clock, no log, no goroutine.
//
// Updates, restored state and Envoy's requests go in; Next gives the responses to send,
// in the order in which they must reach Envoy. A Book has one owner.
package delta

import (
	"maps"
	"slices"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
	"aether.io/aether/internal/xds/lastgood"
)

// Book is the account. Use New.
type Book struct {
	epoch string // of this process: makes its versions differ from those of any other
	nonce uint64 // of the newest response

	loaded    bool // there is something to serve, even if it is nothing: received or restored
	open      bool // Envoy is connected
	scopesDue bool // a listener was accepted that may be about to subscribe to scopes
	listened  uint64

	kinds   [kind.Count]state
	own     map[resource.Name]*resource.Resource // wanted, but not for Envoy
	undo    map[resource.Name]*resource.Resource // wanted before the update under way; nil: absent
	touched map[resource.Name]struct{}           // differ from what Commit last returned
	refused map[resource.Name]resource.Refusal   // of what is wanted
	waiting map[resource.Name]struct{}           // refused for what may change by itself
}

// state is one kind. What is below the line lasts as long as one connection.
type state struct {
	kind    kind.Kind
	entries map[string]*entry
	maybe   map[string]struct{} // may run in an Envoy of an earlier connection
	tainted map[string]struct{} // Envoy may take what is sent for what it has, and be wrong; see mark

	subscribed bool                     // Envoy has asked for the type
	answered   bool                     // and has accepted or refused a response since
	claimed    map[string]string        // what Envoy said it had when it subscribed
	names      map[string]struct{}      // asked for by name
	have       map[string]resource.Hash // accepted on this connection; see absent, unknown
	dirty      map[string]bool          // to be sent; true: even if Envoy has it
	gone       map[string]struct{}      // to be removed
	kept       map[string]struct{}      // to be removed when connections have drained; see keep
	over       map[string]struct{}      // that has been so long enough
	groups     [][]string               // parts of a refused response that wait for their turn
	inflight   []*batch                 // sent and not answered, oldest first
}

// batch is one response.
type batch struct {
	nonce   string
	items   []item
	removed []string
	again   bool // of listeners: Envoy was subscribed to scopes before this
	// held: Envoy withholds its answer because of clusters that are warming.
	held    bool
	warming map[string]struct{}
}

// item is one resource of a response; nil: the name is answered as absent.
type item struct {
	name string
	res  *resource.Resource
}

// Values of state.have that are no content's hash.
var (
	absent  = resource.Hash{}               // answered as not existing
	unknown = resource.Hash{0: 1, 31: 0xff} // Envoy may have some version
)

// New returns a Book that serves nothing until Update or Restore. epoch must differ
// from that of every earlier process.
func New(epoch string) *Book {
	b := &Book{
		epoch:   epoch,
		own:     map[resource.Name]*resource.Resource{},
		undo:    map[resource.Name]*resource.Resource{},
		touched: map[resource.Name]struct{}{},
		refused: map[resource.Name]resource.Refusal{},
		waiting: map[resource.Name]struct{}{},
	}
	for k := range kind.Kind(kind.Count) {
		b.kinds[k] = state{kind: k, entries: map[string]*entry{}, maybe: map[string]struct{}{}, tainted: map[string]struct{}{}}
		b.kinds[k].reset()
	}
	return b
}

func (s *state) reset() {
	s.subscribed, s.answered, s.groups, s.inflight, s.claimed = false, false, nil, nil, nil
	s.names, s.have = map[string]struct{}{}, map[string]resource.Hash{}
	s.dirty, s.gone = map[string]bool{}, map[string]struct{}{}
	s.kept, s.over = map[string]struct{}{}, map[string]struct{}{}
}

// Restore takes in what was last good. It comes before anything else.
func (b *Book) Restore(im *lastgood.Image) {
	b.loaded = true
	for n, r := range im.Resources {
		k, ok := kind.Of(n.TypeURL)
		if !ok {
			b.own[n] = r
			continue
		}
		e := &entry{want: r}
		f, refused := im.Refused[n]
		if live := im.Fallback[n]; live != nil {
			e.accept(k, live)
		} else if !refused {
			e.accept(k, r)
		}
		if refused {
			e.refuse(f.Hash, f.Detail)
			b.refused[n] = f
			if kind.Environmental(f.Detail) {
				b.waiting[n] = struct{}{}
			}
		}
		b.kinds[k].entries[n.Name] = e
	}
}

// Update takes in what the controller sent. It is relative to what was last committed or
// kept: an earlier update that was neither is taken back first.
func (b *Book) Update(u resource.Update) {
	b.loaded = true
	stale := b.undo
	b.undo = map[resource.Name]*resource.Resource{}
	for n, r := range stale {
		b.want(n, r)
	}
	clear(b.undo)
	in := make(map[resource.Name]struct{}, len(u.Changed))
	for _, r := range u.Changed {
		in[r.Name] = struct{}{}
		b.want(r.Name, r)
	}
	for _, n := range u.Removed {
		b.want(n, nil)
	}
	if !u.Full {
		return
	}
	drop := func(n resource.Name) {
		if _, ok := in[n]; !ok {
			b.want(n, nil)
		}
	}
	for n := range b.own {
		drop(n)
	}
	for k := range kind.Kind(kind.Count) {
		for n := range b.kinds[k].entries {
			drop(resource.Name{TypeURL: k.TypeURL(), Name: n})
		}
	}
}

// want makes r what is wanted under n; nil: nothing.
func (b *Book) want(n resource.Name, r *resource.Resource) {
	old := b.wanted(n)
	if old == r || old != nil && r != nil && old.Hash == r.Hash {
		return // what is refused stays refused
	}
	if _, ok := b.undo[n]; !ok {
		b.undo[n] = old
	}
	b.touched[n] = struct{}{}
	k, ok := kind.Of(n.TypeURL)
	if !ok {
		if r == nil {
			delete(b.own, n)
		} else {
			b.own[n] = r
		}
		return
	}
	s := &b.kinds[k]
	e := s.entries[n.Name]
	if e == nil {
		e = &entry{}
		s.entries[n.Name] = e
	}
	e.want = r
	b.settle(s, n.Name)
	s.touch(n.Name, false)
	delete(s.kept, n.Name)
	delete(s.over, n.Name)
	if k == kind.Listeners {
		b.reconsider()
	}
}

func (b *Book) wanted(n resource.Name) *resource.Resource {
	k, ok := kind.Of(n.TypeURL)
	if !ok {
		return b.own[n]
	}
	if e := b.kinds[k].entries[n.Name]; e != nil {
		return e.want
	}
	return nil
}

// Commit makes the update under way, if any, what later ones are relative to, and
// returns what is different for the last-good store since the last Commit. Version
// and mark are the caller's.
func (b *Book) Commit() lastgood.Record {
	var rec lastgood.Record
	for _, n := range slices.SortedFunc(maps.Keys(b.touched), resource.Name.Compare) {
		w := b.wanted(n)
		if w == nil {
			rec.Removed = append(rec.Removed, n)
			continue
		}
		rec.Resources = append(rec.Resources, w)
		if f, ok := b.refused[n]; ok {
			rec.Refused = append(rec.Refused, f)
		}
		if k, ok := kind.Of(n.TypeURL); ok {
			if live := b.kinds[k].entries[n.Name].live; live != nil && live.Hash != w.Hash {
				rec.Fallback = append(rec.Fallback, live) // w is refused, or Envoy has not read it yet
			}
		}
	}
	clear(b.touched)
	clear(b.undo)
	return rec
}

// Keep makes the update under way, if any, what later ones are relative to, though nobody has
// answered for it. It is in what Commit returns next.
func (b *Book) Keep() { clear(b.undo) }

// Untaken lists what is wanted and not committed, sorted: no Envoy has answered for it.
func (b *Book) Untaken() []resource.Name {
	var out []resource.Name
	for n := range b.touched {
		if b.wanted(n) != nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, resource.Name.Compare)
	return out
}

// Uncommitted reports whether Commit would return something.
func (b *Book) Uncommitted() bool { return len(b.touched) > 0 }

// Refused lists what is wanted and not accepted, sorted.
func (b *Book) Refused() []resource.Refusal {
	return slices.SortedFunc(maps.Values(b.refused), func(x, y resource.Refusal) int { return x.Compare(y.Name) })
}

// Pending lists what Envoy has been sent and cannot use yet, or what waits for that, sorted.
func (b *Book) Pending() []resource.Name {
	var out []resource.Name
	add := func(k kind.Kind, n string) { out = append(out, resource.Name{TypeURL: k.TypeURL(), Name: n}) }
	for _, t := range b.kinds[kind.Clusters].inflight {
		for n := range t.warming {
			add(kind.Clusters, n)
		}
	}
	for _, k := range []kind.Kind{kind.Scopes, kind.Listeners} {
		for n := range b.kinds[k].dirty {
			add(k, n)
		}
	}
	slices.SortFunc(out, resource.Name.Compare)
	return slices.Compact(out)
}

// Listened counts the answers to listeners.
func (b *Book) Listened() uint64 { return b.listened }

// Ports lists the TCP ports of the listeners that Envoy accepted last and is still to
// have, sorted.
func (b *Book) Ports() []uint32 {
	var ports []uint32
	for _, e := range b.kinds[kind.Listeners].entries {
		if e.live != nil && e.want != nil && e.refusal(e.live.Hash) == nil {
			ports = append(ports, kind.PortsOf(e.live)...)
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}
