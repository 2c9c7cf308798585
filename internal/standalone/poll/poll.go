// Package poll asks again and again, for what tells nobody that it has changed. It knows
// nothing of what is asked: the question is its caller's.
package poll

import (
	"context"
	"time"
)

// Until calls ok until it is true or ctx is done. What takes long is called less often, so
// that asking does not disturb who is asked.
func Until(ctx context.Context, ok func() bool) error {
	const often = 10 * time.Millisecond
	// Exits: ok, or ctx is done.
	for {
		began := time.Now()
		if ok() {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(max(often, Rest(time.Since(began)))):
		}
	}
}

// Rest is how long to wait after a question that took so long.
func Rest(took time.Duration) time.Duration { return 10 * took }
