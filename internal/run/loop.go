package run

import (
	"context"
	"time"
)

// Loop calls step at once, and then whenever there is something in wake, and at the time at which
// step wants to be called even so; zero: there is none. It returns ctx's error when ctx is done,
// which step finds out by itself.
func Loop(ctx context.Context, wake <-chan struct{}, step func(context.Context) (again time.Time)) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wake:
		case <-timer.C:
		}
		again := step(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		timer.Stop()
		if !again.IsZero() {
			timer.Reset(time.Until(again))
		}
	}
}
