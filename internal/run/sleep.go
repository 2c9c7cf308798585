package run

import (
	"context"
	"time"
)

// Sleep waits for d, or less if ctx is done, which it returns as an error.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
