package delta

import (
	"slices"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
)

// entry is one name: what is wanted, what Envoy last accepted, and which of the two
// it has refused.
type entry struct {
	want *resource.Resource // nil: it is to be removed
	live *resource.Resource // nil: nothing was ever accepted
	bad  []refusal          // of want or live, at most one each
	uses []string           // of a live listener: the subscriptions to scopes that it shares
}

// refusal is of one content.
type refusal struct {
	hash   resource.Hash
	detail string
	again  bool // it is to be offered once more
}

func (e *entry) refusal(h resource.Hash) *refusal {
	for i := range e.bad {
		if e.bad[i].hash == h {
			return &e.bad[i]
		}
	}
	return nil
}

// target is what Envoy is to run: what is wanted or, while that is refused, what it
// accepted before.
func (e *entry) target() *resource.Resource {
	if e == nil || e.want == nil {
		return nil
	}
	for _, r := range []*resource.Resource{e.want, e.live} {
		if r == nil {
			continue
		}
		if bad := e.refusal(r.Hash); bad == nil || bad.again {
			return r
		}
	}
	return nil
}

func (e *entry) refuse(h resource.Hash, detail string) {
	if bad := e.refusal(h); bad != nil {
		bad.detail, bad.again = detail, false
		return
	}
	e.bad = append(e.bad, refusal{hash: h, detail: detail})
}

// accept makes res what is live.
func (e *entry) accept(k kind.Kind, res *resource.Resource) {
	if e.live = res; k == kind.Listeners {
		e.uses = kind.ScopesOf(res)
	}
	e.bad = slices.DeleteFunc(e.bad, func(r refusal) bool { return r.hash == res.Hash })
}

// settle brings the book's lists of refusals in line with the entry of that name,
// and forgets refusals of contents that are no longer wanted nor live.
func (b *Book) settle(s *state, name string) {
	n := resource.Name{TypeURL: s.kind.TypeURL(), Name: name}
	e := s.entries[name]
	waits := false
	if e != nil {
		is := func(r *resource.Resource, h resource.Hash) bool { return r != nil && r.Hash == h }
		e.bad = slices.DeleteFunc(e.bad, func(r refusal) bool {
			return e.want == nil || !is(e.want, r.hash) && !is(e.live, r.hash)
		})
		waits = slices.ContainsFunc(e.bad, func(r refusal) bool { return kind.Environmental(r.detail) })
	}
	if waits {
		b.waiting[n] = struct{}{}
	} else {
		delete(b.waiting, n)
	}
	old, was := b.refused[n]
	var now resource.Refusal
	is := false
	if e != nil && e.want != nil {
		if r := e.refusal(e.want.Hash); r != nil {
			now, is = resource.Refusal{Name: n, Hash: r.hash, Detail: r.detail}, true
		}
	}
	if is == was && now == old {
		return
	}
	b.touched[n] = struct{}{}
	if is {
		b.refused[n] = now
	} else {
		delete(b.refused, n)
	}
}

// touch decides whether the name must be sent, removed or neither. force: send it
// even if Envoy has it.
func (s *state) touch(name string, force bool) {
	force = force || s.dirty[name]
	delete(s.dirty, name)
	delete(s.gone, name)
	t := s.entries[name].target()
	have, known := s.have[name]
	_, asked := s.names[name]
	switch {
	case !s.subscribed, s.kind.Named() && !asked && !force:
	case force && (t != nil || s.kind.Named()):
		s.dirty[name] = true
	case t != nil && (!known || have != t.Hash):
		s.dirty[name] = false
	case t == nil && known && have != absent:
		s.gone[name] = struct{}{}
	}
	if e := s.entries[name]; e != nil && e.want == nil && !known && !s.sent(name) {
		delete(s.entries, name)
	}
}

// sent reports whether the name is in a response that is not answered.
func (s *state) sent(name string) bool {
	for _, b := range s.inflight {
		if slices.ContainsFunc(b.items, func(i item) bool { return i.name == name }) {
			return true
		}
	}
	return false
}
