package world

import (
	"context"
	"time"
)

// Run names laggards when their deadline passes and forgets proxies that have been
// gone for long. It returns nil when ctx ends. Without it everything else works.
func (w *World) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for { // left when ctx ends
		select {
		case <-ctx.Done():
			return nil
		case <-w.rearm:
		case <-timer.C:
		}
		if d, ok := w.expire(); ok {
			timer.Reset(d)
		} else {
			timer.Stop()
		}
	}
}

// expire acts on the deadlines that have passed and returns how long it is to the next.
func (w *World) expire() (next time.Duration, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.cfg.Now()
	w.armed = time.Time{}
	for _, a := range w.areas {
		for id, p := range a.proxies {
			w.judge(p)
			if p.sub == nil && !now.Before(p.since.Add(w.cfg.Keep)) {
				a.drop(id)
				w.pulse()
			}
			for _, t := range p.deadlines(w.cfg) {
				if t.After(now) && (w.armed.IsZero() || t.Before(w.armed)) {
					w.armed = t
				}
			}
		}
	}
	return w.armed.Sub(now), !w.armed.IsZero()
}

// deadlines lists those of a proxy, passed ones too.
func (p *proxy) deadlines(cfg Config) []time.Time {
	if p.sub == nil {
		return []time.Time{p.since.Add(cfg.Keep)}
	}
	var out []time.Time
	if t := p.sub.waiting; !t.IsZero() {
		out = append(out, t.Add(cfg.AckDeadline))
	}
	for _, t := range p.pending {
		out = append(out, t.Add(cfg.AckDeadline))
	}
	return out
}

// arm has Run look at deadlines at t at the latest.
func (w *World) arm(t time.Time) {
	if !w.armed.IsZero() && !t.Before(w.armed) {
		return
	}
	w.armed = t
	select {
	case w.rearm <- struct{}{}:
	default:
	}
}

func (w *World) armPending(p *proxy) {
	if t := p.oldestPending(); !t.IsZero() {
		w.arm(t.Add(w.cfg.AckDeadline))
	}
}
