package drain_test

import (
	"testing"
	"time"

	"aether.io/aether/internal/drain"
)

// A drain as a table of moments: what is seen at each, and what follows.
func TestADrainGoesOnWhenItMay(t *testing.T) {
	type moment struct {
		at   time.Duration
		seen drain.Sight
		want drain.Phase
		left int
		cut  bool
	}
	const s = time.Second
	unknown := drain.Sight{Connections: -1}
	told := func(n int) drain.Sight { return drain.Sight{Told: true, Connections: n} }
	for name, moments := range map[string][]moment{
		"connections end": {
			{4 * s, unknown, drain.Leaving, -1, false},
			{5 * s, unknown, drain.Waning, -1, false},
			{6 * s, told(3), drain.Waning, 3, false},
			{7 * s, told(1), drain.Waning, 1, false},
			{8 * s, told(0), drain.Drained, 0, false},
		},
		"the delay is waited for though nobody is connected": {{4 * s, told(0), drain.Leaving, -1, false}},
		"a connection outlives the time":                     {{5 * s, unknown, drain.Waning, -1, false}, {44 * s, told(1), drain.Waning, 1, false}, {45 * s, told(1), drain.Drained, 1, true}},
		"Envoy never answers":                                {{5 * s, unknown, drain.Waning, -1, false}, {44 * s, unknown, drain.Waning, -1, false}, {45 * s, unknown, drain.Drained, -1, true}},
		"there is no Envoy":                                  {{5 * s, unknown, drain.Waning, -1, false}, {6 * s, drain.Sight{Gone: true}, drain.Drained, 0, false}},
		"none connected, and not yet told":                   {{5 * s, unknown, drain.Waning, -1, false}, {6 * s, drain.Sight{}, drain.Waning, 0, false}},
		"nothing follows the end":                            {{5 * s, unknown, drain.Waning, -1, false}, {6 * s, told(0), drain.Drained, 0, false}, {50 * s, told(7), drain.Drained, 0, false}},
	} {
		t.Run(name, func(t *testing.T) {
			terms := drain.Terms{Delay: 5 * s, Timeout: 45 * s}
			begun := time.Unix(1000, 0)
			state := drain.State{}.Begin(begun)
			for _, m := range moments {
				state = state.Next(terms, m.seen, begun.Add(m.at))
				if state.Phase != m.want || state.Connections != m.left || state.Cut != m.cut || !state.Begun.Equal(begun) {
					t.Fatalf("after %s: %+v, want %s with %d left, cut %t", m.at, state, m.want, m.left, m.cut)
				}
			}
		})
	}
}

func TestNothingHappensBeforeADrainIsAskedFor(t *testing.T) {
	var s drain.State
	for range 3 {
		s = s.Next(drain.Terms{Timeout: time.Second}, drain.Sight{Told: true}, time.Unix(1e9, 0))
	}
	if s != (drain.State{}) || s.Due(drain.Terms{}, time.Now(), time.Second) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAskingAgainDoesNotBeginAgain(t *testing.T) {
	first := drain.State{}.Begin(time.Unix(1, 0))
	if again := first.Begin(time.Unix(2, 0)); again != first {
		t.Errorf("%+v, want %+v", again, first)
	}
}

func TestTheNextLookIsNeverAfterTheEnd(t *testing.T) {
	terms := drain.Terms{Delay: 5 * time.Second, Timeout: 45 * time.Second}
	begun := time.Unix(1000, 0)
	leaving := drain.State{}.Begin(begun)
	waning := leaving.Next(terms, drain.Sight{}, begun.Add(terms.Delay))
	for name, c := range map[string]struct {
		state drain.State
		at    time.Duration
		want  time.Duration
	}{
		"the delay":           {leaving, time.Second, 4 * time.Second},
		"a look":              {waning, 10 * time.Second, time.Second},
		"the end of the time": {waning, 44*time.Second + 500*time.Millisecond, 500 * time.Millisecond},
		"at once":             {waning, 50 * time.Second, time.Nanosecond},
	} {
		if got := c.state.Due(terms, begun.Add(c.at), time.Second); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
