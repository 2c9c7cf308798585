package xds

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/delta"
	"aether.io/aether/internal/xds/kind"
	"aether.io/aether/internal/xds/lastgood"
)

const (
	lookFirst  = 5 * time.Millisecond // then doubling
	lookMost   = time.Second
	retryFirst = time.Second // then doubling
	retryMost  = 30 * time.Second
	// silence is how long Envoy may owe an answer that nothing in it can delay. Then
	// the stream is ended, and Envoy opens one that starts from nothing.
	silence = time.Minute
	// usualDrain is how long Envoy drains if it is not told otherwise.
	usualDrain = 10 * time.Minute
	drainLeast = time.Second
	// mostUntaken is how many bytes of names are said to be pending without an Envoy: with the
	// rest of an answer they have to fit into a message.
	mostUntaken = 256 << 10
	// bindMost is how long an Envoy that is new and has accepted everything is waited for to
	// listen. A port that it cannot have, and does not say so, keeps the others no longer.
	bindMost = 5 * time.Second
)

// loop owns the protocol state. Everything in it is touched by its goroutine only.
type loop struct {
	*Server
	book   *delta.Book
	store  *lastgood.Store // nil: nothing is kept
	stream *stream         // nil: Envoy is not connected
	gone   bool            // one was, and no other has come yet
	update *applying       // not committed; nil: none
	now    resource.Observed

	moved time.Time // when something last came in
	first time.Time // when all was first committed on this stream; zero: not yet
	base  uint64    // book.Listened at the last commit

	questions chan question // to the looker, capacity 1
	sights    chan sight    // from the looker, capacity 1
	looking   bool          // a question is out
	seen      sight         // the last
	seenAt    uint64        // book.Listened when it was asked for
	askedAt   uint64
	blind     bool // the admin socket did not answer; it was logged

	drains time.Duration // how long Envoy drains connections; negative: it has not said
	due    []string      // scopes that are kept until the timer drained; nil: it is stopped
	asked  bool          // how long that is, if it was not known for these

	tick, again, retry, drained  *time.Timer
	ticking, looksAgain, retries bool
	lookWait, retryWait          time.Duration
}

func newLoop(s *Server, book *delta.Book, store *lastgood.Store) *loop {
	stopped := func() *time.Timer {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	return &loop{
		Server: s, book: book, store: store,
		now:       resource.Observed{Version: s.image.Version, Outcome: resource.Outcome{Refused: book.Refused()}},
		questions: make(chan question, 1), sights: make(chan sight, 1),
		tick: stopped(), again: stopped(), retry: stopped(), drained: stopped(), drains: -1,
		lookWait: lookFirst, retryWait: retryFirst,
	}
}

// run handles one event at a time. Exits: ctx is done.
func (l *loop) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case a := <-l.applies:
			l.moved, l.update = l.cfg.Now(), a
			l.book.Update(a.update)
			if l.gone {
				l.put()
			}
		case st := <-l.opened:
			l.open(st)
		case st := <-l.closed:
			l.close(ctx, st)
		case m := <-l.inbox:
			l.request(ctx, m)
		case v := <-l.sights:
			l.saw(ctx, v)
		case <-l.again.C:
			l.looksAgain = false
			l.ask()
		case <-l.retry.C:
			l.retries = false
			l.retryWait = min(2*l.retryWait, retryMost)
			l.book.Retry()
		case <-l.drained.C:
			l.book.Release(l.due)
			l.due, l.asked = nil, false
		case <-l.tick.C:
			l.ticking = false
			l.impatient(ctx)
		}
		l.advance(ctx)
	}
}

func (l *loop) open(st *stream) {
	if l.stream != nil {
		close(l.stream.over)
	}
	l.stream, l.gone, l.moved = st, false, l.cfg.Now()
	l.first, l.now.Configured = time.Time{}, false // it may be another Envoy, that has nothing yet
	l.drains, l.asked = -1, false
	l.now.EnvoyConnected = true
	l.met.connects.Inc()
	l.book.Open()
	l.ask()
}

func (l *loop) close(ctx context.Context, st *stream) {
	if st != l.stream {
		return
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "envoy disconnected")
	l.stream, l.gone = nil, true
	l.now.EnvoyConnected, l.now.Configured = false, false
	l.book.Close()
	if l.update != nil {
		l.put()
	}
	l.ask()
}

// put answers the update under way though no Envoy has, and keeps it for the next one: all
// that none has answered for is pending.
func (l *loop) put() {
	names, size := l.book.Untaken(), 0
	for _, n := range names {
		size += len(n.TypeURL) + len(n.Name)
	}
	if size > mostUntaken {
		return // it is answered when there is an Envoy
	}
	l.update.tell(resource.Outcome{Refused: l.book.Refused(), Pending: names})
	l.book.Keep()
}

func (l *loop) request(ctx context.Context, m fromEnvoy) {
	if m.stream != l.stream {
		return
	}
	l.moved = l.cfg.Now()
	if m.req.GetNode() != nil && !m.stream.known { // it may come with every request
		m.stream.known = true
		l.now.EnvoyVersion = envoyVersion(m.req.GetNode())
		l.log.LogAttrs(ctx, slog.LevelInfo, "envoy connected", slog.String(logkey.Version, l.now.EnvoyVersion))
	}
	l.log.LogAttrs(ctx, slog.LevelDebug, "envoy asks or answers", slog.Any(logkey.Type, request{m.req}))
	if k, ok := kind.Of(m.req.GetTypeUrl()); ok && m.req.GetResponseNonce() != "" {
		result := "accepted"
		if m.req.GetErrorDetail() != nil {
			result = "refused"
		}
		l.met.answers.WithLabelValues(k.String(), result).Inc()
	}
	for _, r := range l.book.Request(m.req) {
		if old := l.now.Refused; slices.Contains(old, r) {
			continue // tried again, and known
		}
		l.log.LogAttrs(ctx, slog.LevelWarn, "envoy refused a resource",
			slog.String(logkey.Resource, r.Name.String()), slog.String(logkey.Reason, r.Detail))
	}
}

// advance sends what can be sent and finishes what is finished.
func (l *loop) advance(ctx context.Context) {
	for _, r := range l.book.Next() {
		l.log.LogAttrs(ctx, slog.LevelDebug, "sent to envoy", slog.Any(logkey.Type, response{r}))
		select {
		case l.stream.outbox <- r:
		default: // cannot be: more is unanswered than is ever sent
			close(l.stream.over)
			l.close(ctx, l.stream)
			return
		}
	}
	settled := l.book.Settled()
	if settled {
		l.settle(ctx)
	}
	unfinished := !settled || l.update != nil || l.base != l.book.Listened()
	if l.stream != nil && unfinished && !l.ticking {
		l.ticking = true
		l.tick.Reset(l.cfg.Patience)
	}
	switch waiting := l.book.Waiting(); {
	case !waiting:
		l.retryWait = retryFirst
	case !l.retries:
		l.retries = true
		l.retry.Reset(l.retryWait)
	}
	l.drain(ctx)
	l.publish(settled)
}

// drain waits for the end of connections that look up what is kept. What is kept while it
// waits is waited for after that: no longer than twice as long as Envoy drains.
func (l *loop) drain(ctx context.Context) {
	if l.due == nil && l.book.Keeps() {
		l.due = l.book.Kept()
		l.drained.Reset(l.drainTime())
		l.log.LogAttrs(ctx, slog.LevelInfo, "scopes stay until connections that look them up have drained",
			slog.Int(logkey.Count, len(l.due)))
	}
	if l.due != nil && l.drains < 0 && !l.asked && !l.looking {
		l.asked = true
		l.ask()
	}
}

func (l *loop) drainTime() time.Duration {
	if l.drains < 0 {
		return usualDrain
	}
	return max(l.drains, drainLeast)
}

// settle commits, once listeners that were answered for are also seen to be in use,
// or patience is over.
func (l *loop) settle(ctx context.Context) {
	if n := l.book.Listened(); n != l.base {
		if l.askedAt != n {
			l.ask()
		}
		if (l.seenAt != n || !l.clear()) && !l.impatience() {
			return
		}
	}
	l.base = l.book.Listened()
	if l.update != nil || l.book.Uncommitted() || l.first.IsZero() {
		l.commit(ctx)
	}
	l.now.Configured = l.now.Configured || l.bound() || l.cfg.Now().Sub(l.first) >= bindMost
}

func (l *loop) commit(ctx context.Context) {
	rec := l.book.Commit()
	if l.update != nil {
		rec.Version, rec.Mark = l.update.update.Version, l.update.update.Mark.Clone()
	}
	if l.update == nil && !rec.IsZero() {
		rec.Version, rec.Mark = l.image.Version, l.image.Mark
	}
	if !rec.IsZero() {
		l.mu.Lock()
		l.image.Apply(rec)
		l.mu.Unlock()
	}
	if l.first.IsZero() {
		l.first = l.cfg.Now()
	}
	l.now.Version = l.image.Version
	l.now.Configured = l.now.Configured || l.bound()
	l.publish(true)
	if l.update != nil {
		l.update.tell(l.now.Outcome)
		l.update = nil
	}
	if l.store == nil || rec.IsZero() {
		return
	}
	if err := l.store.Append(rec, l.image); err != nil {
		l.log.LogAttrs(ctx, slog.LevelError, "last-good store is behind", slog.Any(logkey.Error, err))
	}
	l.met.lastGood.Set(float64(l.store.Size()))
}

// publish makes known what is observed. What is pending is known when all is settled.
func (l *loop) publish(settled bool) {
	l.now.Refused = l.book.Refused()
	l.now.BoundPorts = l.seen.bound
	if settled {
		p := append(l.book.Pending(), l.seen.warming...)
		slices.SortFunc(p, resource.Name.Compare)
		l.now.Pending = slices.Compact(p)
	}
	connected := 0.0
	if l.now.EnvoyConnected {
		connected = 1
	}
	l.met.connected.Set(connected)
	l.met.refused.Set(float64(len(l.now.Refused)))
	l.met.pending.Set(float64(len(l.now.Pending)))
	l.observe(l.now)
}

// impatience: nothing has come in for long enough.
func (l *loop) impatience() bool { return l.cfg.Now().Sub(l.moved) >= l.cfg.Patience }

// impatient is called now and then while something is unfinished.
func (l *loop) impatient(ctx context.Context) {
	if l.stream == nil || !l.impatience() {
		return
	}
	l.book.NoScopes()
	clusters, others := l.book.Unanswered()
	if clusters {
		l.ask()
	}
	if others && l.cfg.Now().Sub(l.moved) >= silence {
		l.log.LogAttrs(ctx, slog.LevelWarn, "envoy owes an answer, starting over")
		close(l.stream.over)
		l.close(ctx, l.stream)
	}
}

// ask has the looker look, unless it does.
func (l *loop) ask() {
	if l.looking {
		return
	}
	l.looking, l.askedAt = true, l.book.Listened()
	l.questions <- question{ports: l.book.Ports(), alive: l.stream != nil, drain: l.asked && l.drains < 0} // capacity 1, none is out
}

func (l *loop) saw(ctx context.Context, v sight) {
	l.looking, l.seen, l.seenAt = false, v, l.askedAt
	if v.err != nil && !l.blind {
		l.log.LogAttrs(ctx, slog.LevelWarn, "what envoy is warming is not known", slog.Any(logkey.Error, v.err))
	}
	if v.portErr != nil {
		l.log.LogAttrs(ctx, slog.LevelWarn, "bound ports are not known", slog.Any(logkey.Error, v.portErr))
	}
	l.blind = v.err != nil
	if v.drain >= 0 && l.stream != nil {
		l.drains = v.drain
		if l.due != nil {
			l.drained.Reset(l.drainTime())
		}
	}
	var clusters []string
	for _, n := range v.warming {
		if n.TypeURL == envoy.ClusterType {
			clusters = append(clusters, n.Name)
		}
	}
	if sent, _ := l.book.Unanswered(); sent && len(clusters) > 0 && l.impatience() {
		l.book.Hold(clusters)
	}
	if l.stream == nil && len(v.bound) == 0 || l.stream != nil && l.clear() && l.seenAt == l.book.Listened() {
		l.lookWait = lookFirst
		return
	}
	if !l.looksAgain {
		l.looksAgain = true
		l.again.Reset(l.lookWait)
		l.lookWait = min(2*l.lookWait, lookMost)
	}
}

// clear: nothing was seen to be warming, and every port that was asked for is bound.
func (l *loop) clear() bool {
	return len(l.seen.warming) == 0 && (l.seen.portErr != nil || len(l.seen.bound) == len(l.seen.asked.ports))
}

// bound: the listeners that were accepted last were seen to listen.
func (l *loop) bound() bool {
	return l.seen.asked.alive && l.seenAt == l.book.Listened() &&
		(l.seen.portErr != nil || len(l.seen.bound) == len(l.seen.asked.ports))
}
