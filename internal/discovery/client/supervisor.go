package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/backoff"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/discovery/session"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/snapshot"
)

// supervisor decides. It belongs to the goroutine of Client.Run alone.
//
// There are at most two sessions: the current one, which the controller has taken on,
// and the next one, which is on its way there. From the moment that the next has
// subscribed, what arrives on the current one waits: the next was promised a
// difference to what was held then. It is taken up again should the next fail.
type supervisor struct {
	*Client
	content

	events  chan event   // sessions send, and give up when they are dropped
	results chan applied // room for the one application that may be under way
	running sync.WaitGroup

	current *link
	next    *link

	failures   backoff.Backoff
	lastFailed time.Time
	retryAt    time.Time // no session is opened before
	told       string    // the kind of the failure that was logged last, empty after a success
	trouble    error     // why there is no stream, nil while there is one
	opened     int       // sessions so far
	skew       *skew     // nil unless the wire version differs
}

// link is a session and what the supervisor knows of it.
type link struct {
	*session.Session
	svid *identity.SVID
	stop context.CancelFunc

	subscribed bool
	leaving    bool               // the controller has said goodbye
	heard      bool               // the controller has sent a message
	begun      time.Time          // when it became the current one
	deadline   time.Time          // for the first message
	queued     *snapshot.Snapshot // waits for work
	working    bool               // its snapshot is being applied
	answered   *snapshot.Answer   // the newest
	dirty      bool               // there may be something to report
	reported   *discoveryv1.NodeStatus
	reportedAt time.Time
}

// event is what the session of a link tells.
type event struct {
	from *link
	what any
}

var (
	errSilent  = errors.New("the controller said nothing after Subscribe")
	errTooFast = fmt.Errorf("%w: a second snapshot before the answer to the first", discovery.ErrProtocol)
)

// skew is the time of differing wire versions: no stream is tried.
type skew struct {
	sequence uint64    // of the newest SVID whose answer is known not to heal it
	renewAt  time.Time // when to ask again
}

func newSupervisor(c *Client) *supervisor {
	v := &supervisor{Client: c, events: make(chan event), results: make(chan applied, 1)}
	v.restore()
	return v
}

// step does everything that is due.
func (v *supervisor) step(ctx context.Context) {
	now := time.Now()
	for _, s := range []*link{v.next, v.current} {
		if s != nil && !s.heard && !now.Before(s.deadline) {
			v.lost(s, errSilent)
		}
	}
	v.mend(now)
	if v.wanted() && !now.Before(v.retryAt) {
		v.open(ctx, now)
	}
	v.work(ctx)
	v.publish()
	v.report(now)
}

// sleep is the time until something is due for which nobody will wake us.
func (v *supervisor) sleep() time.Duration {
	now := time.Now()
	until := time.Hour
	at := func(t time.Time) { until = min(until, t.Sub(now)) }
	if v.wanted() {
		at(v.retryAt)
	}
	for _, s := range []*link{v.next, v.current} {
		if s != nil && !s.heard {
			at(s.deadline)
		}
	}
	if v.skew != nil {
		at(v.skew.renewAt)
	}
	if due, ok := v.reportDue(); ok {
		at(due)
	}
	if id := v.cfg.Identity.Current(); id != nil && !id.ExpiredAt(v.cfg.Now()) {
		until = min(until, id.NotAfter().Sub(v.cfg.Now())+time.Millisecond) // the state changes then
	}
	return max(until, 0)
}

// wanted reports whether a session should be opened as soon as the back-off allows.
func (v *supervisor) wanted() bool {
	id := v.cfg.Identity.Current()
	if v.next != nil || v.skew != nil || id == nil || id.ExpiredAt(v.cfg.Now()) {
		return false
	}
	return v.current == nil || v.current.leaving || v.current.svid.Sequence() < id.Sequence()
}

func (v *supervisor) open(ctx context.Context, now time.Time) {
	ctx, stop := context.WithCancel(ctx)
	id := v.cfg.Identity.Current()
	s := &link{
		Session: session.New(v.endpoint, v.cfg.Identity.ClientTLS(id), v.cfg.Calls),
		svid:    id, stop: stop, deadline: now.Add(v.cfg.FirstWord),
	}
	v.next = s
	if v.opened++; v.opened > 1 {
		v.metrics.reconnects.Inc()
	}
	tell := func(what any) bool {
		select {
		case v.events <- event{from: s, what: what}:
			return true
		case <-ctx.Done(): // dropped, or the client stops
			return false
		}
	}
	v.running.Go(func() {
		defer stop()
		s.Run(ctx, tell)
	})
}

// handle takes in what a session tells.
func (v *supervisor) handle(e event) {
	s := e.from
	if s != v.current && s != v.next {
		return // dropped
	}
	switch what := e.what.(type) {
	case session.Connected:
		s.subscribed = true
		s.Subscribe(v.subscribe())
	case session.Begun:
		s.heard = true
		if s == v.next {
			v.promote()
		}
	case snapshot.Snapshot:
		if s.queued != nil || s.working {
			v.lost(s, errTooFast)
			return
		}
		s.queued = &what
	case session.Inventory:
		s.List(v.refs())
	case session.Renew:
		v.cfg.Log.Info("controller asks for a new SVID", logkey.Reason, what.Reason)
		v.cfg.Identity.Renew()
	case session.Goodbye:
		v.cfg.Log.Info("controller says goodbye", logkey.Reason, what.Reason, logkey.Wait, what.After)
		v.leave(s, what.After)
	case session.Ended:
		v.lost(s, what.Err)
	}
}

// promote makes the next session the current one: the controller has taken it on, or
// has ended the one before it for its sake.
func (v *supervisor) promote() {
	s := v.next
	if v.current != nil {
		v.drop(v.current)
	}
	v.current, v.next = s, nil
	s.begun = time.Now()
	s.dirty = true
	v.told, v.trouble = "", nil
	v.cfg.Log.Info("stream established", logkey.Endpoint, v.endpoint.String(), logkey.Serial, s.svid.Serial(), logkey.Scope, v.cfg.Scope.String())
}

// leave prepares to go elsewhere; the session is used until it ends or another is there.
func (v *supervisor) leave(s *link, after time.Duration) {
	after = min(after, longestGoodbye)
	now := time.Now()
	if s.leaving {
		return
	}
	s.leaving = true
	if !v.forget(now) { // a controller that keeps sending us away does not get a tight loop
		after = max(after, v.failures.Next())
	}
	v.lastFailed = now
	v.retryAt = now.Add(after)
}

const longestGoodbye = 10 * time.Minute

// forget resets the back-off if the stream has been healthy for long enough.
func (v *supervisor) forget(now time.Time) bool {
	s := v.current
	if s == nil || now.Sub(s.begun) < v.cfg.Healthy || now.Sub(v.lastFailed) < v.cfg.Healthy {
		return false
	}
	v.failures.Reset()
	return true
}

// drop ends a session and forgets it.
func (v *supervisor) drop(s *link) {
	s.stop()
	switch s {
	case v.current:
		v.current = nil
	case v.next:
		v.next = nil
	}
}

// lost takes in that a session has ended, and decides when to try again.
func (v *supervisor) lost(s *link, err error) {
	now := time.Now()
	wasCurrent := s == v.current
	if wasCurrent {
		v.forget(now)
	}
	v.drop(s)
	if wasCurrent && v.next != nil && v.next.subscribed {
		v.promote() // the controller has ended the one for the other
		return
	}
	if v.current == nil {
		v.trouble = err
	}
	if wasCurrent && (s.leaving || v.next != nil) {
		return // expected, or the next is on its way
	}
	v.lastFailed = now
	verdict := judge(err, &v.failures)
	v.retryAt = now.Add(verdict.wait)
	if verdict.renew {
		v.cfg.Identity.Renew()
	}
	if verdict.skew {
		v.skewed(s, err, now)
		return
	}
	log := v.cfg.Log.Debug // said already
	if kind := dial.Kind(err); kind != v.told {
		v.told = kind
		log = v.cfg.Log.Warn
		if verdict.bug {
			log = v.cfg.Log.Error
		}
	}
	log("no stream to the controller", logkey.Endpoint, v.endpoint.String(), logkey.Error, err, logkey.Wait, verdict.wait)
}

func (v *supervisor) skewed(s *link, err error, now time.Time) {
	v.skew = &skew{sequence: s.svid.Sequence(), renewAt: now.Add(backoff.Spread(v.cfg.SkewRenew, 0.1))}
	v.cfg.Log.Error("wire version differs, the stream is not tried again until a bootstrap answer matches",
		logkey.Endpoint, v.endpoint.String(), logkey.Code, "FAILED_PRECONDITION", logkey.Error, err,
		logkey.WireVersion, v.cfg.WireVersion, logkey.ServerWireVersion, s.svid.ServerWireVersion())
}

// mend ends the skew once a bootstrap answer shows our wire version, and asks for such
// answers meanwhile.
func (v *supervisor) mend(now time.Time) {
	if v.skew == nil {
		return
	}
	next := now.Add(backoff.Spread(v.cfg.SkewRenew, 0.1))
	if id := v.cfg.Identity.Current(); id != nil && id.Sequence() > v.skew.sequence {
		if id.ServerWireVersion() == v.cfg.WireVersion {
			v.cfg.Log.Info("wire version matches again", logkey.WireVersion, v.cfg.WireVersion)
			v.skew, v.retryAt, v.told = nil, time.Time{}, ""
			v.failures.Reset()
			return
		}
		v.skew.sequence, v.skew.renewAt = id.Sequence(), next
	}
	if !now.Before(v.skew.renewAt) {
		v.skew.renewAt = next
		v.cfg.Identity.Renew()
	}
}

// subscribe says who we are and what is held.
func (v *supervisor) subscribe() *discoveryv1.Subscribe {
	return &discoveryv1.Subscribe{
		NodeId:       v.cfg.NodeID,
		WireVersion:  v.cfg.WireVersion,
		Scope:        discovery.ScopeToProto(v.cfg.Scope),
		HaveVersion:  v.holding.Version(),
		Refused:      discovery.RefusedToProto(v.refusedOfHeld()),
		Watermark:    discovery.MarkToProto(v.mark),
		Build:        &discoveryv1.BuildInfo{Version: v.cfg.BuildVersion, Revision: v.cfg.BuildRevision},
		EnvoyVersion: v.observed.EnvoyVersion,
	}
}
