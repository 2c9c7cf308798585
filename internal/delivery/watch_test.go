package delivery

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/fleet"
)

// envoy answers with statistics that a test sets.
type envoy struct {
	mu        sync.Mutex // guards what follows
	exporting bool
	stats     map[string]uint64
	err       error
	asked     int
}

func (e *envoy) exports() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.exporting
}

func (e *envoy) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *envoy) Counters(context.Context, string) (map[string]uint64, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	return e.stats, e.err
}

func TestAWatchSaysWhatItSees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &envoy{}
		w, err := New(Config{Envoy: e, Exporting: e.exports})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		go func() { done <- w.Run(ctx) }()
		state := func() string {
			t.Helper()
			synctest.Wait()
			list := w.Checks()
			if len(list) == 0 {
				return ""
			}
			return list[0].State + " " + list[0].Reason
		}
		// step adds to a statistic before each of so many looks.
		step := func(looks int, name string, n uint64) {
			for range looks {
				e.set(func() {
					e.stats = maps.Clone(e.stats)
					if e.stats == nil {
						e.stats = map[string]uint64{}
					}
					e.stats[name] += n
				})
				time.Sleep(DefaultEvery) // of the bubble's clock
				synctest.Wait()
			}
		}
		const sent, failed = "cluster.aether-otel.endpoint.10.0.0.1_4317.rq_success", "cluster.aether-otel.upstream_cx_none_healthy"

		step(3, sent, 1)
		if got := state(); got != "" || e.asked != 0 {
			t.Errorf("without a collector it says %q, and asked %d times", got, e.asked)
		}
		e.set(func() { e.exporting = true })
		step(1, sent, 1)
		if got := state(); got != "" {
			t.Errorf("of what was before its time it says %q", got)
		}
		step(1, sent, 1)
		if got := state(); got != fleet.CheckOK+" " {
			t.Errorf("what arrived is %q", got)
		}
		const unreachable = fleet.CheckFailed + " CollectorUnreachable: its name does not resolve to an address"
		step(3, failed, 2)
		if got := state(); got != unreachable {
			t.Errorf("what fails is %q", got)
		}
		since := w.Checks()[0].Since
		e.set(func() { e.err = errors.New("no Envoy") })
		step(5, sent, 1)
		if got := state(); got != unreachable || !w.Checks()[0].Since.Equal(since) {
			t.Errorf("while Envoy does not answer it says %q since %s, not %s", got, w.Checks()[0].Since, since)
		}
		e.set(func() { e.err, e.stats = nil, nil }) // another Envoy, that counts from the start
		step(4, sent, 3)
		if got := state(); got != fleet.CheckOK+" " {
			t.Errorf("what arrives again is %q", got)
		}
		e.set(func() { e.exporting = false })
		step(1, sent, 1)
		if got := state(); got != "" {
			t.Errorf("without a collector again it says %q", got)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestMetricsAloneThatDoNotArriveAreSaidSo(t *testing.T) {
	now := time.Unix(100, 0)
	c := checkOf(&judge{said: good, since: now}, &judge{said: bad, since: now.Add(time.Second), cause: counts{refused: 1}.cause()})
	if c.State != fleet.CheckFailed || c.Reason != "CollectorRefuses: it answers with errors (it is Envoy's metrics alone; access logs and traces arrive)" || c.Since.Unix() != 101 {
		t.Errorf("%+v", c)
	}
}

func TestAnErrorThatHTTPDoesNotKnowIsOne(t *testing.T) {
	if got := (counts{arrived: 10, lost: 3}).outcome(); got != bad {
		t.Errorf("log records that were lost are %d", got)
	}
	if got := (counts{arrived: 90, refused: 10}).outcome(); got != good {
		t.Errorf("one of ten that fails is %d", got)
	}
}
