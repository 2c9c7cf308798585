package run_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/run"
)

func TestLoopStepsAtOnceWhenWakedAndWhenItIsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		at := began.Add
		// What each step wants next: a time, none, one that is past, and one that a wake-up replaces.
		wants := []time.Time{at(time.Minute), {}, at(time.Hour), at(2 * time.Hour), {}}
		var steps []time.Duration
		wake := make(chan struct{}, 1)
		done := make(chan error, 1)
		go func() {
			done <- run.Loop(ctx, wake, func(context.Context) time.Time {
				steps = append(steps, time.Since(began))
				return wants[len(steps)-1]
			})
		}()
		for _, pause := range []time.Duration{90 * time.Minute, 10 * time.Minute} {
			<-time.After(pause)
			wake <- struct{}{}
		}
		<-time.After(time.Hour)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		want := []time.Duration{0, time.Minute, 90 * time.Minute, 90 * time.Minute, 100 * time.Minute}
		if !slices.Equal(steps, want) {
			t.Errorf("steps at %v, want %v", steps, want)
		}
	})
}

func TestLoopEndsWithAStepThatIsCutShort(t *testing.T) {
	for range 50 { // if it went on, one way or the other would be chosen by chance
		ctx, cancel := context.WithCancel(t.Context())
		wake, steps := make(chan struct{}, 1), 0
		err := run.Loop(ctx, wake, func(context.Context) time.Time {
			steps++
			wake <- struct{}{}
			cancel()
			return time.Time{}
		})
		if !errors.Is(err, context.Canceled) || steps != 1 {
			t.Fatalf("it ended with %v after %d steps", err, steps)
		}
	}
}
