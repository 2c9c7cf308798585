package status

import (
	"math/rand/v2"
	"time"
)

// How fast one object is written. An edit by a person takes one or two writes, which do not
// wait. A Gateway of which a thousand routes are created one by one would take a thousand.
const (
	burst    = 4           // writes that do not wait
	interval = time.Second // between those that follow, and until one more need not wait
)

// How fast what others take away is put back: they may do so each time.
const (
	minTruce = time.Second // after the first time, doubled with each that follows
	maxTruce = 5 * time.Minute
)

// How fast it is told how many proxies have come how far, while nothing else changes: in
// half a minute, after which those who do not answer are laggards, not even ten times.
const (
	minCalm = time.Second // after what else changed, doubled with each that follows
	maxCalm = 16 * time.Second
)

// backoffs is how many times what is waited before a write that failed is doubled.
const backoffs = 4

// pace says when one object may be written. The zero pace says: now.
type pace struct {
	full     time.Time // when burst writes need not wait again
	mended   time.Time // when what others took away was last put back
	times    int       // how often it was, one soon after the other
	minors   int       // how often numbers alone were told, since something else changed
	minorAt  time.Time // when something was last told
	failures int       // in a row
	retryAt  time.Time // after a failure
}

// next is the earliest time of a write.
func (p *pace) next() time.Time { return p.full.Add(-(burst - 1) * interval) }

// peace is the earliest time at which what others took away is put back again.
func (p *pace) peace() time.Time { return p.mended.Add(p.truce()) }

// truce is how long what was put back last is left alone if it is taken away again.
func (p *pace) truce() time.Duration {
	if p.times == 0 {
		return 0
	}
	return min(minTruce<<min(p.times-1, 10), maxTruce)
}

// calm is the earliest time at which numbers alone are told again.
func (p *pace) calm() time.Time { return p.minorAt.Add(min(minCalm<<min(p.minors, 10), maxCalm)) }

// told notes that numbers alone are being told. After a time without any it begins anew.
func (p *pace) told(now time.Time) {
	if now.Sub(p.minorAt) > 2*maxCalm {
		p.minors = 0
	} else {
		p.minors++
	}
	p.minorAt = now
}

// changed notes that something else is being told.
func (p *pace) changed(now time.Time) { p.minors, p.minorAt = 0, now }

// tried notes a call that wrote, or failed: what is edited all the time is not tried all the
// time while it cannot be written.
func (p *pace) tried(now time.Time) {
	if p.full.Before(now) {
		p.full = now
	}
	p.full = p.full.Add(interval)
}

// mends notes a write that put back what others had taken away.
func (p *pace) mends(now time.Time) {
	if p.times > 0 && now.Sub(p.mended) > 2*p.truce() {
		p.times = 0
	}
	p.times++
	p.mended = now
}

// failed notes a failure and returns how long to wait for the next try: longer each time,
// and not the same for all that failed together.
func (p *pace) failed(now time.Time, least time.Duration) time.Duration {
	wait := least << min(p.failures, backoffs)
	wait = min(wait, 10*least)
	if p.failures > 0 {
		wait -= rand.N(wait/4 + 1)
	}
	p.failures++
	p.retryAt = now.Add(wait)
	return wait
}

// succeeded forgets failures.
func (p *pace) succeeded() { p.failures = 0 }
