// Package run starts the parts of a process together and stops them together, and has the loop
// that most of them are. It is not a framework: a part is a name and a blocking function, and
// what the parts take from and give to each other is wired where they are listed.
package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"aether.io/aether/internal/logkey"
)

// Part is one long-lived activity of a process.
type Part struct {
	Name string
	// Run blocks until ctx is done, then returns nil or ctx's error. Returning
	// earlier ends the whole process: with its error, or as unexpected if nil.
	Run func(ctx context.Context) error
}

// ErrStopTimeout says that a part was still running when the time to stop was over.
var ErrStopTimeout = errors.New("parts did not stop in time")

// All runs the parts until ctx is done or one of them returns, then stops the rest and
// waits for them for at most grace. It returns nil if ctx ended it and every part stopped.
func All(ctx context.Context, log *slog.Logger, grace time.Duration, parts ...Part) error {
	group, running := errgroup.WithContext(ctx)
	for _, p := range parts {
		group.Go(func() error {
			err := p.Run(running)
			switch {
			case running.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
				return nil
			case err == nil:
				return fmt.Errorf("%s ended by itself", p.Name)
			default:
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		})
	}
	done := make(chan error, 1)
	go func() { done <- group.Wait() }()

	// Exits: every part has returned, or the grace is over after the stop began.
	select {
	case err := <-done:
		return err
	case <-running.Done():
	}
	log.Debug("stopping", logkey.Wait, grace)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return ErrStopTimeout
	}
}
