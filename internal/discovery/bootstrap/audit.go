package bootstrap

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/logkey"
)

// keep is how many issuances, and how many refusals, are remembered.
const keep = 512

// Result is how a request ended.
type Result string

// The results.
const (
	Issued  Result = "issued"
	Refused Result = "refused" // the caller's doing
	Failed  Result = "failed"  // ours
)

// Reason is why nothing was issued. Reasons are metric labels.
type Reason string

// The reasons.
const (
	ReasonRateLimited     Reason = "RateLimited"
	ReasonTooLarge        Reason = "TooLarge"
	ReasonMalformed       Reason = "Malformed"
	ReasonUnauthenticated Reason = "Unauthenticated"
	ReasonNotAllowed      Reason = "NotAllowed"
	ReasonMalformedCSR    Reason = "MalformedCSR"
	ReasonWeakKey         Reason = "WeakKey"
	ReasonNoAttestation   Reason = "AttestationUnavailable"
	ReasonNoDecision      Reason = "DecisionUnavailable"
	ReasonCAUnusable      Reason = "CAUnusable"
	ReasonInternal        Reason = "Internal"
)

// flood reports whether anybody can cause the reason without limit, before any work was
// done. Such refusals are counted each and told of together.
func (r Reason) flood() bool {
	return r == ReasonRateLimited || r == ReasonTooLarge || r == ReasonMalformed
}

// Entry is one line of the audit. It never holds a token, a request or a key.
type Entry struct {
	Time     time.Time `json:"time"`
	Result   Result    `json:"result"`
	Reason   Reason    `json:"reason,omitempty"`
	Error    string    `json:"error,omitempty"`
	Count    int       `json:"count"` // how many the entry stands for, at least 1
	Addr     string    `json:"addr"`
	Identity string    `json:"identity,omitempty"` // empty: none was proved
	Pod      string    `json:"pod,omitempty"`
	PodUID   string    `json:"podUID,omitempty"`
	Node     string    `json:"node,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	KeyID    string    `json:"keyID,omitempty"`
}

// Events is told of rejected bootstraps, for an Event BootstrapRejected each.
type Events interface {
	// BootstrapRejected must not block. It is called at most once a minute for each
	// principal and reason, and 60 times a minute in all; e.Count says for how many.
	BootstrapRejected(principal string, e Entry)
}

// audit counts, logs and remembers how requests ended.
type audit struct {
	log    *slog.Logger
	events Events
	total  *prometheus.CounterVec

	mu      sync.Mutex // guards what follows
	issued  ring
	refused ring // apart, so that no flood of refusals pushes out what was issued
	rejects aggregate
}

func newAudit(log *slog.Logger, events Events, reg prometheus.Registerer) (*audit, error) {
	a := &audit{
		log: log, events: events, rejects: aggregate{last: map[rejection]*told{}},
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "coxswain_discovery_bootstrap_total", Help: "Bootstrap requests by how they ended and why.",
		}, []string{"result", "reason"}),
	}
	if reg != nil {
		if err := reg.Register(a.total); err != nil {
			return nil, fmt.Errorf("register bootstrap metrics: %w", err)
		}
	}
	return a, nil
}

// record takes one request's end; source is where it came from, without the port.
func (a *audit) record(ctx context.Context, source string, e Entry) {
	a.total.WithLabelValues(string(e.Result), string(e.Reason)).Inc()
	e.Count = 1
	principal := e.Identity
	if principal == "" {
		principal = "unknown (" + source + ")"
	}
	a.mu.Lock()
	tell := 0
	if e.Result == Refused {
		tell = a.rejects.admit(rejection{principal, e.Reason}, e.Time)
	}
	if e.Reason.flood() {
		if tell == 0 {
			a.mu.Unlock()
			return
		}
		e.Count = tell
	}
	if e.Result == Issued {
		a.issued.add(e)
	} else {
		a.refused.add(e)
	}
	a.mu.Unlock()
	a.write(ctx, e)
	if tell > 0 && a.events != nil {
		e.Count = tell
		a.events.BootstrapRejected(principal, e)
	}
}

func (a *audit) write(ctx context.Context, e Entry) {
	who := []slog.Attr{
		slog.String(logkey.Addr, e.Addr), slog.String(logkey.Identity, e.Identity), slog.String(logkey.Pod, e.Pod),
		slog.String(logkey.PodUID, e.PodUID), slog.String(logkey.Node, e.Node),
	}
	if e.Result == Issued {
		a.log.LogAttrs(ctx, slog.LevelInfo, "SVID issued", append(who,
			slog.String(logkey.Serial, e.Serial), slog.Time(logkey.NotAfter, e.NotAfter), slog.String(logkey.KeyID, e.KeyID))...)
		return
	}
	who = append(who, slog.String(logkey.Reason, string(e.Reason)),
		slog.String(logkey.Error, e.Error), slog.Int(logkey.Count, e.Count))
	if e.Result == Failed {
		a.log.LogAttrs(ctx, slog.LevelError, "bootstrap not possible", who...)
		return
	}
	a.log.LogAttrs(ctx, slog.LevelWarn, "bootstrap refused", who...)
}

// entries returns what is remembered, oldest first.
func (a *audit) entries() []Entry {
	a.mu.Lock()
	out := append(a.issued.list(), a.refused.list()...)
	a.mu.Unlock()
	slices.SortStableFunc(out, func(x, y Entry) int { return cmp.Compare(x.Time.UnixNano(), y.Time.UnixNano()) })
	return out
}

// ring holds the last keep entries.
type ring struct {
	entries []Entry
	next    int // where the next goes once entries is full: the oldest
}

func (r *ring) add(e Entry) {
	if len(r.entries) < keep {
		r.entries = append(r.entries, e)
		return
	}
	r.entries[r.next] = e
	r.next = (r.next + 1) % keep
}

func (r *ring) list() []Entry { return append(slices.Clone(r.entries[r.next:]), r.entries[:r.next]...) }

// rejection is what is told of once a minute.
type rejection struct {
	principal string
	reason    Reason
}

// The bounds of what is told of rejections.
const (
	tellEvery = time.Minute
	tellMost  = 60 // in tellEvery
)

type told struct {
	at    time.Time
	since int // rejections that were not told of since
}

// aggregate decides which rejections are told of. Only what was told of is remembered,
// and for a minute only unless more came: it never holds more than 3 * tellMost.
type aggregate struct {
	last   map[rejection]*told
	window time.Time // when the current minute began
	count  int       // told of in it
}

// admit returns 0, or for how many rejections of the kind the caller is to tell now.
func (g *aggregate) admit(r rejection, now time.Time) int {
	if now.Sub(g.window) >= tellEvery {
		g.window, g.count = now, 0
		for k, t := range g.last { // what is older than the window before
			if now.Sub(t.at) >= 2*tellEvery {
				delete(g.last, k)
			}
		}
	}
	t := g.last[r]
	switch {
	case t != nil && now.Sub(t.at) < tellEvery, g.count >= tellMost:
		if t != nil {
			t.since++
		}
		return 0
	case t == nil:
		t = &told{}
		g.last[r] = t
	}
	n := t.since + 1
	t.at, t.since = now, 0
	g.count++
	return n
}
