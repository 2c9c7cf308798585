package event_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/event"
)

// sink keeps Events as an API server does.
type sink struct {
	mu     sync.Mutex
	events map[string]event.Written
	writes map[string][]time.Time // by reason
	fail   error
}

func (s *sink) Create(_ context.Context, w event.Written) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.keep(w)
	return nil
}

func (s *sink) Repeat(_ context.Context, w event.Written) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, found := s.events[w.Name]; !found || s.fail != nil {
		return false, s.fail
	}
	s.keep(w)
	return true, nil
}

func (s *sink) keep(w event.Written) {
	s.events[w.Name] = w
	s.writes[w.Reason] = append(s.writes[w.Reason], time.Now())
}

// counts is how often each note was recorded, as far as that is written.
func (s *sink) counts() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]int{}
	for _, w := range s.events {
		out[w.Note] += w.Count
	}
	return out
}

// expire removes all Events, as an API server does after an hour.
func (s *sink) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.events)
}

func (s *sink) set(fail error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func play(t *testing.T, test func(*testing.T, *event.Recorder, *sink, *prometheus.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &sink{events: map[string]event.Written{}, writes: map[string][]time.Time{}}
		metrics := prometheus.NewRegistry()
		r, err := event.New(event.Config{Sink: s, Log: slog.New(slog.DiscardHandler), Registerer: metrics})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		test(t, r, s, metrics)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		for reason, writes := range s.writes {
			for i, at := range writes {
				if i >= 60 && at.Sub(writes[i-60]) < time.Minute {
					t.Fatalf("61 writes of %s within %s", reason, at.Sub(writes[i-60]))
				}
			}
		}
	})
}

// pass lets the bubble's time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

const reason = "BootstrapRejected"

func rejected(note string) event.Event {
	return event.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "aether-system", Name: "discovery"},
		Type:      corev1.EventTypeWarning, Reason: reason, Note: note,
	}
}

func TestWhatIsRecordedAgainIsCounted(t *testing.T) {
	play(t, func(t *testing.T, r *event.Recorder, s *sink, _ *prometheus.Registry) {
		want := func(writes, events, count int) {
			t.Helper()
			got := s.counts()
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.writes[reason]) != writes || len(s.events) != events || got["a"] != count {
				t.Fatalf("%v in %d Events and %d writes, want %d in %d and %d", got, len(s.events), len(s.writes[reason]), count, events, writes)
			}
		}
		r.Record(rejected("a"))
		synctest.Wait()
		want(1, 1, 1)
		for range 10 {
			r.Record(rejected("a"))
			pass(time.Second)
		}
		want(1, 1, 1) // not twice a minute
		pass(time.Minute)
		want(2, 1, 11)
		e := rejected("a")
		e.Count = 5
		r.Record(e)
		s.expire()
		pass(time.Minute)
		want(3, 1, 16)
		pass(time.Hour)
		r.Record(rejected("a")) // so much later it is another matter
		pass(time.Second)
		want(4, 2, 17)
	})
}

func TestAFloodIsBoundedAndCounted(t *testing.T) {
	play(t, func(t *testing.T, r *event.Recorder, s *sink, metrics *prometheus.Registry) {
		for i := range 1000 {
			r.Record(rejected(fmt.Sprint("peer ", i)))
		}
		pass(time.Second)
		if n := len(s.writes[reason]); n != 60 {
			t.Fatalf("%d writes at first", n)
		}
		other := rejected("another matter")
		other.Reason = "Quarantined"
		r.Record(other)
		pass(time.Second)
		if got := s.counts(); got["another matter"] != 1 {
			t.Fatal("a flood of one reason holds up another")
		}
		pass(8 * time.Minute)
		if n := len(s.writes[reason]); n != 256 {
			t.Fatalf("%d writes, want as many as are kept", n)
		}
		families, err := metrics.Gather()
		if err != nil {
			t.Fatal(err)
		}
		dropped := 0.0
		for _, f := range families {
			if f.GetName() == "aether_events_dropped_total" {
				dropped = f.GetMetric()[0].GetCounter().GetValue()
			}
		}
		if dropped != 1000-256 {
			t.Errorf("%g were dropped", dropped)
		}
		r.Record(rejected("there is room again"))
		pass(time.Minute)
		if s.counts()["there is room again"] != 1 {
			t.Error("what is told is kept for ever")
		}
	})
}

func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	play(t, func(t *testing.T, r *event.Recorder, s *sink, _ *prometheus.Registry) {
		s.set(errors.New("connection refused"))
		r.Record(rejected("a"))
		pass(10 * time.Minute)
		r.Record(rejected("a"))
		s.set(nil)
		pass(2 * time.Minute)
		if got := s.counts(); got["a"] != 2 {
			t.Errorf("%v", got)
		}
	})
}

func TestANoteIsCutToWhatTheAPITakes(t *testing.T) {
	play(t, func(t *testing.T, r *event.Recorder, s *sink, _ *prometheus.Registry) {
		r.Record(rejected(strings.Repeat("é", 1000)))
		r.Record(rejected("\xff"))
		synctest.Wait()
		if len(s.events) != 2 {
			t.Fatalf("%d Events", len(s.events))
		}
		for note := range s.counts() {
			if len(note) > 1024 || !utf8.ValidString(note) {
				t.Errorf("%d bytes, valid %t", len(note), utf8.ValidString(note))
			}
		}
	})
}

func TestWhereThereIsNoAPIEventsAreForgotten(*testing.T) {
	var none *event.Recorder
	none.Record(rejected("a")) // and nothing panics
}
