package journal_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"aether.io/aether/internal/journal"
)

func TestTheNewestEventsAreKeptInOrder(t *testing.T) {
	var j journal.Journal
	for range journal.Size + 10 {
		j.Add(time.Unix(0, 0), journal.State, "x", nil)
	}
	got := j.Since(0)
	if len(got) != journal.Size || got[0].Seq != 11 || got[len(got)-1].Seq != journal.Size+10 {
		t.Fatalf("kept %d events, %d to %d", len(got), got[0].Seq, got[len(got)-1].Seq)
	}
	if rest := j.Since(journal.Size + 9); len(rest) != 1 {
		t.Fatalf("%d events after the last but one, want 1", len(rest))
	}
}

func TestWaitReturnsWhatIsAddedAndEndsWithItsContext(t *testing.T) {
	var j journal.Journal
	got := make(chan []journal.Event)
	go func() {
		events, err := j.Wait(t.Context(), 0)
		if err != nil {
			t.Error(err)
		}
		got <- events
	}()
	j.Add(time.Unix(1, 0), journal.CAReady, "ready", nil)
	if events := <-got; len(events) != 1 || events[0].Kind != journal.CAReady {
		t.Fatalf("got %v", events)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := j.Wait(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	}
}
