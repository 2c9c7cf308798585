package world

import "time"

// pace bounds how many snapshots are begun in the long run, so that what sending costs under
// changes that never end leaves room for all else on the machine. A change is sent at once as
// long as there is room, which there is unless many changes went to many proxies just before;
// then it waits for room, never longer than most, and goes with what comes meanwhile. It reads
// no clock; who uses it serializes its methods.
type pace struct {
	rate  float64 // snapshots a second for which room is made
	burst float64 // the most room that there is
	most  time.Duration

	room float64 // snapshots; negative: what was begun is still to be made up for
	at   time.Time
}

func newPace(rate, burst int, most time.Duration) pace {
	return pace{rate: float64(rate), burst: float64(burst), most: most, room: float64(burst)}
}

// wait is how long there is no room; 0: there is.
func (p *pace) wait(now time.Time) time.Duration {
	p.grow(now)
	if p.room >= 0 {
		return 0
	}
	return min(time.Duration(-p.room/p.rate*float64(time.Second))+1, p.most)
}

// take takes the room of n snapshots, whether it is there or not. What there is not is owed,
// but never so much that the next would wait longer than it may.
func (p *pace) take(now time.Time, n int) {
	p.grow(now)
	p.room = max(p.room-float64(n), -p.rate*p.most.Seconds())
}

func (p *pace) grow(now time.Time) {
	if d := now.Sub(p.at); d > 0 {
		p.room = min(p.burst, p.room+p.rate*d.Seconds())
		p.at = now
	}
}

// release lets the subscribers of a scope be sent what it has, now or when there is room for
// that. Those who begin are sent everything without asking here. The caller holds mu.
func (w *World) release(a *area) {
	if a.held {
		return // what it has then goes with it
	}
	now := time.Now()
	if wait := w.pace.wait(now); wait > 0 {
		a.held = true
		time.AfterFunc(wait, func() { // nobody ends it: it is over after wait
			w.mu.Lock()
			defer w.mu.Unlock()
			a.held = false
			w.send(a, time.Now())
		})
		return
	}
	w.send(a, now)
}

// send has the subscribers of a scope take what it has. The caller holds mu.
func (w *World) send(a *area, now time.Time) {
	a.released = a.Seq()
	w.pace.take(now, len(a.subs))
	for sub := range a.subs {
		sub.rouse()
	}
}
