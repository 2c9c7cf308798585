package run_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/run"
)

func TestSleepEndsWithTheTimeOrWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := run.Sleep(t.Context(), time.Hour); err != nil || time.Since(began) != time.Hour {
			t.Errorf("an hour took %s: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began = time.Now()
		if err := run.Sleep(ctx, time.Hour); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
			t.Errorf("a minute of an hour took %s: %v", time.Since(began), err)
		}
	})
}
