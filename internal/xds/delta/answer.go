package delta

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
)

// Open begins a connection of Envoy. Nothing is taken for granted of what Envoy has.
func (b *Book) Open() {
	b.Close()
	b.open = true
	b.Retry() // whatever it was, it may be over
}

// Close ends the connection, if there is one.
func (b *Book) Close() {
	b.open, b.scopesDue = false, false
	for k := range kind.Kind(kind.Count) {
		s := &b.kinds[k]
		if !k.Named() {
			for n := range s.have {
				s.maybe[n] = struct{}{}
			}
			for _, t := range s.inflight {
				for _, i := range t.items {
					s.maybe[i.name] = struct{}{}
					if k == kind.Scopes {
						s.tainted[i.name] = struct{}{} // it may have been refused
					}
				}
				for _, n := range t.removed {
					s.maybe[n] = struct{}{}
				}
			}
		}
		s.reset()
		for n, e := range s.entries {
			if e.want == nil {
				delete(s.entries, n)
			}
		}
	}
}

// Request takes in what Envoy says: an answer, a change of its subscription, or both.
// It returns what was refused by it.
func (b *Book) Request(req *discoveryv3.DeltaDiscoveryRequest) []resource.Refusal {
	k, ok := kind.Of(req.GetTypeUrl())
	if !ok {
		return nil // nothing of that type exists, and nobody waits for it
	}
	s := &b.kinds[k]
	var refused []resource.Refusal
	if n := req.GetResponseNonce(); n != "" {
		if t := s.answer(n); t != nil {
			refused = b.answered(s, t, req)
		}
	}
	if !s.subscribed {
		s.subscribe(req.GetInitialResourceVersions())
		if k == kind.Scopes {
			b.scopesDue = false
			b.taint(s)
		}
	}
	if !k.Named() {
		return refused
	}
	for _, n := range req.GetResourceNamesUnsubscribe() {
		delete(s.names, n)
		delete(s.have, n)
		delete(s.dirty, n)
		s.touch(n, false)
	}
	for _, n := range req.GetResourceNamesSubscribe() {
		if n != "*" {
			s.names[n] = struct{}{}
			s.touch(n, true)
		}
	}
	return refused
}

// subscribe begins a subscription. Of what Envoy and earlier connections say that it
// runs, only the names are believed: what is not wanted will be removed.
func (s *state) subscribe(claimed map[string]string) {
	s.subscribed, s.claimed = true, claimed
	if s.kind.Named() {
		return
	}
	for n := range claimed {
		s.maybe[n] = struct{}{}
	}
	for n := range s.maybe {
		s.have[n] = unknown
		s.touch(n, false)
	}
	clear(s.maybe)
	for n := range s.entries {
		s.touch(n, false)
	}
}

// taint marks the scopes that an Envoy which has been running may remember without
// using them: those of which it does not claim exactly what is to be sent.
func (b *Book) taint(s *state) {
	if len(s.claimed)+len(b.kinds[kind.Clusters].claimed)+len(b.kinds[kind.Listeners].claimed) == 0 {
		return // it has just started
	}
	for n := range s.dirty {
		if t := s.entries[n].target(); t != nil && !strings.HasSuffix(s.claimed[n], version(t.Hash)) {
			s.tainted[n] = struct{}{}
		}
	}
}

// version is what a content is called to Envoy, but for the epoch before it.
func version(h resource.Hash) string { return "-" + h.String()[:16] }

// answer takes the batch of that nonce from those in flight; nil: there is none.
func (s *state) answer(nonce string) *batch {
	i := slices.IndexFunc(s.inflight, func(t *batch) bool { return t.nonce == nonce })
	if i < 0 {
		return nil
	}
	t := s.inflight[i]
	s.inflight = slices.Delete(s.inflight, i, i+1)
	return t
}

func (b *Book) answered(s *state, t *batch, req *discoveryv3.DeltaDiscoveryRequest) []resource.Refusal {
	s.answered = true
	var before map[string]struct{}
	if s.kind == kind.Listeners {
		b.listened++
		b.scopesDue = len(t.items) > 0 && !b.kinds[kind.Scopes].subscribed && len(b.kinds[kind.Scopes].entries) > 0
		before = s.shared()
	}
	var refused []resource.Refusal
	if req.GetErrorDetail() != nil {
		refused = b.reject(s, t, strings.TrimSpace(req.GetErrorDetail().GetMessage()))
	} else {
		// Without a listener that uses them, Envoy accepts scopes unread.
		read := s.kind != kind.Scopes || len(b.kinds[kind.Listeners].shared()) > 0
		for _, i := range t.items {
			b.accept(s, i, read)
		}
		s.forget(t.removed)
	}
	if s.kind == kind.Listeners && t.again {
		b.repeatScopes(before, s.shared())
	}
	return refused
}

// shared lists the subscriptions to scopes of the listeners that Envoy has.
func (s *state) shared() map[string]struct{} {
	out := map[string]struct{}{}
	for n, e := range s.entries {
		_, has := s.have[n]
		if _, claims := s.claimed[n]; !has && !claims {
			continue
		}
		for _, u := range e.uses {
			out[u] = struct{}{}
		}
	}
	return out
}

// repeatScopes sends all scopes once more if a listener has made a subscription of its
// own: Envoy, having asked for all scopes once, does not ask for them again, and the
// listener would wait for them in vain.
func (b *Book) repeatScopes(before, after map[string]struct{}) {
	maps.DeleteFunc(after, func(u string, _ struct{}) bool { _, ok := before[u]; return ok })
	if len(after) == 0 {
		return
	}
	for n := range b.kinds[kind.Scopes].entries {
		b.kinds[kind.Scopes].touch(n, true)
	}
}

// accept notes that Envoy runs the item, or would, had it read it.
func (b *Book) accept(s *state, i item, read bool) {
	delete(s.tainted, i.name)
	s.have[i.name] = absent
	if i.res != nil {
		s.have[i.name] = i.res.Hash
	}
	if _, asked := s.names[i.name]; s.kind.Named() && !asked {
		delete(s.have, i.name) // sent unasked, or no longer asked for
	}
	if e := s.entries[i.name]; e != nil && i.res != nil && read {
		if e.live != nil && e.live.Hash != i.res.Hash {
			b.touched[resource.Name{TypeURL: s.kind.TypeURL(), Name: i.name}] = struct{}{} // its fallback is another
		}
		e.accept(s.kind, i.res)
		b.settle(s, i.name)
	}
	s.touch(i.name, false)
}

// forget notes that Envoy has removed the names.
func (s *state) forget(names []string) {
	for _, n := range names {
		delete(s.have, n)
		delete(s.claimed, n)
		delete(s.tainted, n)
		delete(s.kept, n)
		delete(s.over, n)
		s.touch(n, false)
	}
}

// reject finds out, or sets out to find out, what a refusal is about.
func (b *Book) reject(s *state, t *batch, detail string) []resource.Refusal {
	names := make([]string, 0, len(t.items))
	for _, i := range t.items {
		names = append(names, i.name)
	}
	for _, n := range t.removed { // not removed, unless it turns out so
		s.touch(n, false)
	}
	culprits := kind.Blame(s.kind, names, detail)
	switch {
	case len(culprits) > 0: // the rest was applied
		var out []resource.Refusal
		for _, i := range t.items {
			if d, ok := culprits[i.name]; ok {
				out = append(out, b.refuse(s, i, d)...)
			} else {
				b.accept(s, i, true)
			}
		}
		s.forget(t.removed)
		return out
	case len(t.items) == 0:
		s.forget(t.removed)
		return nil
	case len(t.items) == 1:
		return b.refuse(s, t.items[0], detail)
	}
	for _, n := range names {
		if s.kind == kind.Scopes {
			s.tainted[n] = struct{}{}
		}
		if _, known := s.have[n]; s.kind == kind.Scopes || s.kind.Named() && known {
			s.have[n] = unknown // some may have been applied
		}
	}
	// Halves, each of which is split again if it is refused, down to one resource.
	m := len(names) / 2
	s.groups = append([][]string{names[:m:m], names[m:]}, s.groups...)
	return nil
}

// refuse notes that Envoy does not take the item; whatever it had under that name stays.
func (b *Book) refuse(s *state, i item, detail string) []resource.Refusal {
	e := s.entries[i.name]
	if i.res == nil { // nothing less can be offered
		s.have[i.name] = absent
		s.touch(i.name, false)
		return nil
	}
	if e == nil {
		s.touch(i.name, false)
		return nil
	}
	e.refuse(i.res.Hash, detail)
	b.settle(s, i.name)
	_, asked := s.names[i.name]
	s.touch(i.name, asked) // a cluster may wait for an answer that it can take
	return []resource.Refusal{{Name: resource.Name{TypeURL: s.kind.TypeURL(), Name: i.name}, Hash: i.res.Hash, Detail: detail}}
}

// send puts the batch in flight and renders it.
func (b *Book) send(k kind.Kind, t *batch) *discoveryv3.DeltaDiscoveryResponse {
	b.nonce++
	t.nonce = strconv.FormatUint(b.nonce, 10)
	s := &b.kinds[k]
	s.inflight = append(s.inflight, t)
	out := &discoveryv3.DeltaDiscoveryResponse{TypeUrl: k.TypeURL(), Nonce: t.nonce, RemovedResources: t.removed}
	for _, i := range t.items {
		body, hash := kind.Empty(k, i.name), absent
		if i.res != nil {
			body, hash = i.res.Any(), i.res.Hash
			if _, ok := s.tainted[i.name]; ok {
				body.Value = kind.Mark(i.res.Payload, b.epoch+"-"+t.nonce)
			}
		}
		if body == nil {
			out.RemovedResources = append(out.RemovedResources, i.name)
			continue
		}
		out.Resources = append(out.Resources, &discoveryv3.Resource{
			Name: i.name, Resource: body, Version: b.epoch + version(hash),
		})
	}
	return out
}
