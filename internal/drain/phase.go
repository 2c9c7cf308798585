// Package drain ends a proxy's service without ending a request: it says first that the
// proxy is not to be given any more, then has Envoy end its connections, and tells when they
// have. What comes next is decided in State.Next, which touches nothing; Drain does it. It
// stops no process: who asked for the drain does that when it is over.
package drain

import "time"

// Phase is how far a drain is.
type Phase uint8

// The phases, in their order. None is ever left but for the next.
const (
	Serving Phase = iota // nobody has asked for a drain
	Leaving              // not ready any more; those who send traffic are given the time to learn it
	Waning               // Envoy ends each connection with the next answer on it
	Drained              // no connection is left, or the time is over
)

// String is the phase's name.
func (p Phase) String() string { return [...]string{"Serving", "Leaving", "Waning", "Drained"}[p] }

// Terms are how long a drain may take.
type Terms struct {
	Delay   time.Duration // in Leaving
	Timeout time.Duration // from its begin to Drained, whatever is still connected
}

// Sight is what was seen of Envoy.
type Sight struct {
	Gone        bool // there is none that could have connections
	Told        bool // it has been told to end its connections
	Connections int  // that clients have to it; negative: not known
}

// State is a drain as far as it is. The zero State is before.
type State struct {
	Phase       Phase
	Begun       time.Time // when it was asked for; zero in Serving
	Connections int       // as last seen, negative if not known; left behind if Cut
	Cut         bool      // Drained because the time was over
}

// Begin is the state once a drain has been asked for: asking again changes nothing.
func (s State) Begin(now time.Time) State {
	if s.Phase != Serving {
		return s
	}
	return State{Phase: Leaving, Begun: now, Connections: -1}
}

// Next is the state that follows at now, if Envoy was seen like that. It is at most one
// phase further.
func (s State) Next(t Terms, seen Sight, now time.Time) State {
	over := now.Sub(s.Begun) >= t.Timeout
	switch s.Phase {
	case Serving, Drained:
	case Leaving:
		if over || now.Sub(s.Begun) >= t.Delay {
			s.Phase = Waning
		}
	case Waning:
		s.Connections = seen.Connections
		switch {
		case seen.Gone:
			s.Phase, s.Connections = Drained, 0
		case seen.Told && seen.Connections == 0:
			s.Phase = Drained
		case over:
			s.Phase, s.Cut = Drained, true
		}
	}
	return s
}

// Due is when there is something to look at next: the end of the delay, or of the time, at
// most every later. Zero: never.
func (s State) Due(t Terms, now time.Time, every time.Duration) time.Duration {
	switch s.Phase {
	case Leaving:
		return max(s.Begun.Add(min(t.Delay, t.Timeout)).Sub(now), time.Nanosecond)
	case Waning:
		return max(min(every, s.Begun.Add(t.Timeout).Sub(now)), time.Nanosecond)
	case Serving, Drained:
	}
	return 0
}
