package world

import (
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

// maxDetail bounds the bytes kept of what an Envoy says about one resource.
const maxDetail = 4 << 10

// proxy is what is known of one pod in one scope, connected or not. It is guarded by
// the World's lock.
type proxy struct {
	area     *area
	peer     fleet.Peer
	sub      *Subscription // nil: disconnected
	since    time.Time     // of the last change between connected and not
	acked    bool          // has answered on its present line of streams
	answered time.Time     // when it did so last
	seq      uint64        // the sequence that it has answered for
	version  string        // of it
	// differed is how many resources its present stream's first snapshot had, and took away.
	differed int
	pending  map[resource.Name]time.Time
	refused  map[resource.Name]resource.Refusal // counts while the hash is current
	denied   map[resource.Name]time.Time        // since when, of those in refused that were answered
	ports    []uint32
	status   fleet.Status
	laggard  string
	from     time.Time // since when
}

// connect makes a subscription of the peer the one of its pod.
func (w *World) connect(a *area, peer fleet.Peer, have snapshot.Have) *Subscription {
	p := a.proxies[peer.ID]
	if p == nil {
		p = &proxy{area: a}
		a.proxies[peer.ID] = p
		i, _ := slices.BinarySearch(a.ids, peer.ID)
		a.ids = slices.Insert(a.ids, i, peer.ID)
	}
	s := &Subscription{w: w, a: a, p: p, wake: make(chan struct{}, 1)}
	known := false
	switch {
	case have.Version == "":
		s.mode = fromNone
	default:
		s.mode = toAsk
		if s.base, known = a.Resume(have.Version); known {
			s.mode = fromBase
		}
	}
	took := p.sub != nil
	if took {
		p.sub.supersede()
	} else {
		p.since = w.cfg.Now()
	}
	// Only a stream that takes over from a running one inherits what was answered
	// there; any other is a proxy of which nothing has been observed yet.
	if took && known && p.peer.PodUID == peer.PodUID {
		p.seq = min(p.seq, s.base)
	} else {
		p.acked, p.seq, p.version, p.pending = false, 0, "", nil
	}
	p.remind(have.Refused)
	p.peer, p.sub, p.differed = peer, s, 0
	a.subs[s] = struct{}{}
	w.judge(p)
	w.pulse()
	return s
}

// remind takes in the refusals that a proxy knows of, with what it said before of the same content.
func (p *proxy) remind(refused []resource.Refusal) {
	now := make(map[resource.Name]resource.Refusal, len(refused))
	for _, r := range refused {
		if b, ok := p.refused[r.Name]; ok && b.Hash == r.Hash {
			r.Detail = b.Detail
		}
		now[r.Name] = r
	}
	p.setRefused(now)
}

// setRefused replaces what the proxy refuses, and keeps the count of those who do.
func (p *proxy) setRefused(now map[resource.Name]resource.Refusal) {
	if len(p.refused) > 0 {
		p.area.refuse--
	}
	if len(now) > 0 {
		p.area.refuse++
	}
	p.refused = now
}

// answer takes in what a proxy says of the version that it was sent as of.
func (p *proxy) answer(of sent, a snapshot.Answer, now time.Time) {
	p.acked, p.answered, p.seq, p.version = true, now, of.seq, of.version
	pending := make(map[resource.Name]time.Time, len(a.Pending))
	for _, n := range a.Pending {
		if r, _ := p.area.Current(n); r == nil {
			continue
		}
		pending[n] = now
		if t, ok := p.pending[n]; ok {
			pending[n] = t
		}
	}
	p.pending = pending
	refused, denied := make(map[resource.Name]resource.Refusal, len(a.Refused)), make(map[resource.Name]time.Time, len(a.Refused))
	for _, r := range a.Refused {
		cur, seq := p.area.Current(r.Name)
		if cur == nil || seq > of.seq {
			continue // another content is on its way already
		}
		r.Hash = cur.Hash
		if len(r.Detail) > maxDetail {
			r.Detail = strings.ToValidUTF8(r.Detail[:maxDetail], "")
		}
		refused[r.Name], denied[r.Name] = r, now
		if t, ok := p.denied[r.Name]; ok && p.refused[r.Name].Hash == r.Hash {
			denied[r.Name] = t
		}
	}
	p.setRefused(refused)
	p.denied = denied
}

// disconnect notes that a proxy's stream is gone.
func (w *World) disconnect(p *proxy) {
	p.sub, p.since = nil, w.cfg.Now()
	w.judge(p)
	w.arm(p.since.Add(w.cfg.Keep))
	gone := 0
	var oldest *proxy
	for _, q := range p.area.proxies {
		if q.sub == nil {
			gone++
			if oldest == nil || q.since.Before(oldest.since) {
				oldest = q
			}
		}
	}
	if gone > w.cfg.KeepMost {
		p.area.drop(oldest.peer.ID)
	}
	w.pulse()
}

func (a *area) drop(id string) {
	if p := a.proxies[id]; p != nil {
		p.setRefused(nil)
	}
	delete(a.proxies, id)
	if i, ok := slices.BinarySearch(a.ids, id); ok {
		a.ids = slices.Delete(a.ids, i, i+1)
	}
}

// judge decides whether a proxy is a laggard now, and tells if that is new.
func (w *World) judge(p *proxy) {
	reason, from := p.lag(w.cfg.Now(), w.cfg.AckDeadline)
	was := p.laggard
	p.laggard, p.from = reason, from
	if was == reason {
		return
	}
	switch reason {
	case fleet.LagNoAck, fleet.LagPending:
		w.cfg.Log.Warn("proxy lags behind", logkey.Scope, p.area.scope, logkey.NodeID, p.peer.ID, logkey.Reason, reason)
	case "":
		if was != fleet.LagNotConnected {
			w.cfg.Log.Info("proxy has caught up", logkey.Scope, p.area.scope, logkey.NodeID, p.peer.ID)
		}
	}
	w.pulse()
}

func (p *proxy) lag(now time.Time, deadline time.Duration) (reason string, from time.Time) {
	if p.sub == nil {
		return fleet.LagNotConnected, p.since
	}
	if t := p.sub.waiting; !t.IsZero() && !now.Before(t.Add(deadline)) {
		return fleet.LagNoAck, t
	}
	if t := p.oldestPending(); !t.IsZero() && !now.Before(t.Add(deadline)) {
		return fleet.LagPending, t
	}
	return "", time.Time{}
}

func (p *proxy) oldestPending() time.Time {
	var oldest time.Time
	for _, t := range p.pending {
		if oldest.IsZero() || t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}
