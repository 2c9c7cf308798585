package run_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/run"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAllStopsEveryPartWhenOneEnds(t *testing.T) {
	boom := errors.New("boom")
	cases := map[string]struct {
		end  func(context.Context) error
		want string
	}{
		"an error ends the process with its name":   {func(context.Context) error { return boom }, "broken: boom"},
		"an early return without error is an error": {func(context.Context) error { return nil }, "broken ended by itself"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			stopped := make(chan struct{})
			err := run.All(t.Context(), slog.New(slog.DiscardHandler), time.Minute,
				run.Part{Name: "steady", Run: func(ctx context.Context) error { defer close(stopped); return untilDone(ctx) }},
				run.Part{Name: "broken", Run: c.end})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			<-stopped
		})
	}
}

func TestAllReturnsNilWhenAskedToStop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := run.All(ctx, slog.New(slog.DiscardHandler), time.Minute, run.Part{Name: "steady", Run: untilDone})
	if err != nil {
		t.Fatalf("got %v, want nil", err)
	}
}

func TestAllGivesUpOnAPartThatDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		defer close(release)
		cancel()
		err := run.All(ctx, slog.New(slog.DiscardHandler), time.Second,
			run.Part{Name: "wedged", Run: func(context.Context) error { <-release; return nil }})
		if !errors.Is(err, run.ErrStopTimeout) {
			t.Fatalf("got %v, want ErrStopTimeout", err)
		}
	})
}
