// Package backoff spaces retries: exponential delays between a floor and a ceiling,
// with jitter. It holds no timer and reads no clock; the caller waits.
package backoff

import (
	"math/rand/v2"
	"time"
)

// Floor and Ceiling bound the delays of everything that talks to the controller.
const (
	Floor   = 250 * time.Millisecond
	Ceiling = 30 * time.Second
)

// Backoff counts failures in a row. The zero value is ready. It is not safe for
// concurrent use.
type Backoff struct {
	failures int
}

// Next counts a failure and returns how long to wait: between half and all of
// Floor × 2ⁿ after n earlier failures, at most Ceiling.
func (b *Backoff) Next() time.Duration {
	d := Floor
	for range b.failures {
		if d *= 2; d >= Ceiling {
			d = Ceiling
			break
		}
	}
	b.failures++
	return jitter(d)
}

// AtCeiling counts a failure that will not heal soon and returns a wait of between
// half and all of Ceiling.
func (b *Backoff) AtCeiling() time.Duration {
	b.failures++
	return jitter(Ceiling)
}

// Failures returns how many failures were counted since the last Reset.
func (b *Backoff) Failures() int { return b.failures }

// Reset forgets all failures.
func (b *Backoff) Reset() { b.failures = 0 }

// Spread returns d ± fraction of it, uniformly.
func Spread(d time.Duration, fraction float64) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*fraction*float64(d))
}

func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d/2+1) }
