package world

import (
	"fmt"
	"slices"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

// mode is how the next snapshot of a subscription is made.
type mode uint8

const (
	fromBase mode = iota // the difference since base
	fromNone             // everything: the subscriber holds nothing
	toAsk                // the subscriber's inventory has to be asked for
	asked                // it has been
	fromList             // the difference to the inventory
)

// Subscription is one stream's view of its scope. Next belongs to one goroutine; the
// other methods may be called from any.
type Subscription struct {
	w *World
	a *area
	p *proxy

	// wake has room for one token, which says that Next may have something to give.
	// Only the goroutine that calls Next receives.
	wake chan struct{}

	// Guarded by the World's lock.
	mode       mode
	base       uint64 // the sequence that the subscriber was brought to
	version    string // at base, empty before the first
	refs       []snapshot.Ref
	nonce      uint64 // of the newest snapshot
	flight     *sent  // sent and not answered; at most one
	done       sent   // answered last
	waiting    time.Time
	superseded bool
	closed     bool

	onSuperseded func() // nil: nobody wants to know
}

// sent is a snapshot that has been handed out.
type sent struct {
	nonce   uint64
	version string
	seq     uint64
}

// Next returns what is to be sent now. If that is nothing, wait is not nil and
// receives when it is worth asking again: nothing differs from what was sent, the last
// snapshot has not been answered yet, or what differs is held (see Publish). The first snapshot is returned at once
// even if it brings no difference.
//
// It returns snapshot.ErrUnknownVersion, once, if the subscriber's inventory is to be
// asked for; snapshot.ErrSuperseded or snapshot.ErrClosed when the subscription is over.
func (s *Subscription) Next() (snap snapshot.Snapshot, wait <-chan struct{}, err error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if err := s.gone(); err != nil {
		return snapshot.Snapshot{}, nil, err
	}
	if s.flight != nil || s.mode == asked || s.settled() || s.held() {
		return snapshot.Snapshot{}, s.wake, nil
	}
	u, ok := s.update()
	s.wait()
	if !ok {
		s.mode = asked
		return snapshot.Snapshot{}, nil, snapshot.ErrUnknownVersion
	}
	if s.nonce == 0 {
		s.p.differed = len(u.Changed) + len(u.Removed)
	}
	s.nonce++
	s.mode, s.refs = fromBase, nil
	s.flight = &sent{nonce: s.nonce, version: s.a.Version(), seq: s.a.Seq()}
	s.a.Remember()
	return snapshot.Snapshot{Nonce: s.nonce, Update: u}, nil, nil
}

// settled reports whether the subscriber was sent what is current. A world that has
// come back to the version that the subscriber has is no difference.
func (s *Subscription) settled() bool {
	if s.nonce == 0 || s.mode != fromBase || s.version != s.a.Version() {
		return false
	}
	if s.base != s.a.Seq() {
		s.base, s.done.seq = s.a.Seq(), s.a.Seq()
		s.p.seq = s.a.Seq()
		s.w.pulse()
	}
	return true
}

// held reports whether what the subscriber was not sent yet waits to be released. Its first
// snapshot never does.
func (s *Subscription) held() bool {
	return s.nonce != 0 && s.mode == fromBase && s.base >= s.a.released
}

// update makes the difference to be sent; ok is false if the inventory is needed for it.
func (s *Subscription) update() (u resource.Update, ok bool) {
	u = resource.Update{Version: s.a.Version(), Mark: s.w.mark}
	var d resource.Delta
	switch s.mode {
	case fromNone:
		u.Full, u.Changed = true, s.a.All()
		return u, true
	case fromList:
		d = s.a.Against(s.refs)
	case fromBase:
		if d, ok = s.a.Since(s.base); !ok {
			return u, false
		}
		d.Changed = slices.DeleteFunc(d.Changed, func(r *resource.Resource) bool {
			refusal, ok := s.p.refused[r.Name]
			return ok && refusal.Hash == r.Hash // it came back to what it was when refused
		})
	case toAsk, asked:
		return u, false
	}
	u.Changed, u.Removed = d.Changed, d.Removed
	return u, true
}

// Inventory takes what the subscriber was sent, after it was asked for that. It
// returns snapshot.ErrAnswer if it was not.
func (s *Subscription) Inventory(refs []snapshot.Ref) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if err := s.gone(); err != nil {
		return err
	}
	if s.mode != asked {
		return fmt.Errorf("inventory: %w", snapshot.ErrAnswer)
	}
	s.mode, s.refs = fromList, refs
	s.waiting = time.Time{}
	s.w.judge(s.p)
	s.rouse()
	return nil
}

// Answer takes the answer to the snapshot in flight, or once more to the one answered
// last, of which the newest answer counts. An answer to an older one is without
// effect; one to a snapshot that was never sent is snapshot.ErrAnswer.
func (s *Subscription) Answer(a snapshot.Answer) error {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if err := s.gone(); err != nil {
		return err
	}
	of := s.done
	if s.flight != nil && a.Nonce == s.flight.nonce {
		of = *s.flight
	}
	switch {
	case a.Nonce == 0 || a.Nonce > of.nonce:
		return fmt.Errorf("nonce %d: %w", a.Nonce, snapshot.ErrAnswer)
	case a.Nonce < of.nonce:
		return nil
	case a.Version != of.version:
		return fmt.Errorf("nonce %d, version %q: %w", a.Nonce, a.Version, snapshot.ErrAnswer)
	}
	if s.flight != nil && of.nonce == s.flight.nonce {
		s.flight, s.done = nil, of
		s.base, s.version = of.seq, of.version
		s.waiting = time.Time{}
		s.rouse()
	}
	s.p.answer(of, a, s.w.cfg.Now())
	s.w.judge(s.p)
	s.w.armPending(s.p)
	s.w.pulse()
	return nil
}

// Report takes what the proxy observes of itself; ports are sorted. The newest replaces
// all before. After the end of the subscription it has no effect.
func (s *Subscription) Report(ports []uint32, status fleet.Status) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.gone() != nil || (slices.Equal(ports, s.p.ports) && sameStatus(status, s.p.status)) {
		return
	}
	if !slices.Equal(ports, s.p.ports) {
		s.w.bindings++
	}
	s.p.ports, s.p.status = slices.Clone(ports), status
	s.w.pulse()
}

// Close ends the subscription. The proxy is remembered as disconnected, unless a newer
// stream has taken over.
func (s *Subscription) Close() {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.rouse()
	delete(s.a.subs, s)
	if s.p.sub == s {
		s.w.disconnect(s.p)
	}
}

// supersede ends the subscription in favour of a newer one.
func (s *Subscription) supersede() {
	s.superseded = true
	delete(s.a.subs, s)
	s.rouse()
	if s.onSuperseded != nil {
		s.onSuperseded()
	}
}

// gone is what methods return once the subscription is over.
func (s *Subscription) gone() error {
	switch {
	case s.superseded:
		return snapshot.ErrSuperseded
	case s.closed:
		return snapshot.ErrClosed
	}
	return nil
}

// wait notes that something of the subscriber is awaited from now on.
func (s *Subscription) wait() {
	s.waiting = s.w.cfg.Now()
	s.w.arm(s.waiting.Add(s.w.cfg.AckDeadline))
}

func (s *Subscription) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func sameStatus(a, b fleet.Status) bool {
	return a.SVIDSerial == b.SVIDSerial && a.IssuerKeyID == b.IssuerKeyID && a.SVIDNotAfter.Equal(b.SVIDNotAfter) &&
		slices.Equal(a.MountedRoots, b.MountedRoots) && slices.Equal(a.PushedRoots, b.PushedRoots) &&
		slices.EqualFunc(a.Checks, b.Checks, func(x, y fleet.Check) bool {
			return x.Name == y.Name && x.State == y.State && x.Reason == y.Reason && x.Since.Equal(y.Since)
		})
}
