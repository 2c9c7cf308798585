package ahead_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"aether.io/aether/internal/discovery/ahead"
	"aether.io/aether/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBehind = fmt.Errorf("subscribe: %w", snapshot.ErrBehind)

func TestWhoStaysAheadIsToldOnceUntilNobodyIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var told []string
		registry := prometheus.NewRegistry()
		w, err := ahead.New(ahead.Config{
			OnChange: func(ids []string) { told = append(told, strings.Join(ids, ",")) }, Help: "do something",
			Log: slog.New(slog.NewTextHandler(&log, nil)), Registerer: registry,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}()
		// rounds has proxies refused every 10 s, of the bubble.
		rounds := func(n int, ids ...string) {
			for range n {
				for _, id := range ids {
					w.Note(id, errBehind)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
			}
		}
		check := func(when string, ahead int, want ...string) {
			t.Helper()
			if strings.Join(told, ";") != strings.Join(want, ";") {
				t.Errorf("%s: told %q, want %q", when, told, want)
			}
			families, err := registry.Gather()
			if err != nil || len(families) != 1 || families[0].GetName() != "coxswain_discovery_clients_ahead" {
				t.Fatalf("%s: metrics %v, %v", when, families, err)
			}
			if got := families[0].GetMetric()[0].GetGauge().GetValue(); got != float64(ahead) {
				t.Errorf("%s: the metric says %v, want %d", when, got, ahead)
			}
		}
		rounds(3, "b") // a replica that is slower than another
		w.Note("b", nil)
		rounds(1, "b")
		w.Note("c", errors.New("something else"))
		check("for a moment", 0)
		rounds(4, "b")
		check("it lasts", 1, "b")
		rounds(5, "a", "b")
		check("another one", 2, "b", "a,b")
		w.Note("b", nil)
		rounds(1, "a")
		check("one less", 1, "b", "a,b", "a")
		rounds(20) // a is another replica's now, or gone
		check("nobody comes any more", 0, "b", "a,b", "a", "")
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "do something") {
			t.Errorf("%d warnings, want one that says what to do:\n%s", n, log.String())
		}
		if n := strings.Count(log.String(), "level=INFO"); n != 1 {
			t.Errorf("%d times it is told that it is over, want one:\n%s", n, log.String())
		}
	})
}

func TestAWatchNeedsSomebodyToTell(t *testing.T) {
	if _, err := ahead.New(ahead.Config{}); err == nil {
		t.Error("it tells nobody")
	}
}
