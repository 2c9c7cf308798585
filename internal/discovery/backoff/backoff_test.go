package backoff_test

import (
	"testing"
	"time"

	"aether.io/aether/internal/discovery/backoff"
)

func TestNextGrowsFromFloorToCeilingWithinItsJitter(t *testing.T) {
	want := []time.Duration{
		250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second,
		8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second,
	}
	for range 200 {
		var b backoff.Backoff
		for n, most := range want {
			if d := b.Next(); d < most/2 || d > most {
				t.Fatalf("failure %d: wait %s, want between %s and %s", n, d, most/2, most)
			}
		}
		b.Reset()
		if d := b.Next(); d > backoff.Floor {
			t.Fatalf("after Reset: wait %s, want at most %s", d, backoff.Floor)
		}
	}
}

func TestNextNeverPassesTheCeilingHoweverManyFailures(t *testing.T) {
	var b backoff.Backoff
	for range 10_000 {
		if d := b.Next(); d > backoff.Ceiling {
			t.Fatalf("wait %s passes the ceiling", d)
		}
	}
	if b.Failures() != 10_000 {
		t.Fatalf("counted %d failures", b.Failures())
	}
}

func TestAtCeilingWaitsAboutTheCeilingAtOnce(t *testing.T) {
	for range 200 {
		var b backoff.Backoff
		if d := b.AtCeiling(); d < backoff.Ceiling/2 || d > backoff.Ceiling {
			t.Fatalf("wait %s", d)
		}
	}
}

func TestSpreadStaysWithinItsFraction(t *testing.T) {
	differ := map[time.Duration]bool{}
	for range 200 {
		d := backoff.Spread(time.Hour, 0.1)
		if d < 54*time.Minute || d > 66*time.Minute {
			t.Fatalf("spread to %s", d)
		}
		differ[d] = true
	}
	if len(differ) < 100 {
		t.Fatalf("only %d different values of 200", len(differ))
	}
}
