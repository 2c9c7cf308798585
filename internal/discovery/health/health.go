// Package health says in what state a proxy is: which facts make it NotReady, Ready or
// Degraded, with which reason and which checks, and how /readyz shows that. It observes
// nothing: facts come in as values and a State leaves.
package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"aether.io/aether/internal/fleet"
)

// The states of a proxy.
const (
	NotReady = "NotReady" // before the first snapshot is live in the Envoy that runs, or while none runs
	Ready    = "Ready"    // configured, and streaming
	Degraded = "Degraded" // configured, and serving its last-good
)

// The reasons for a state other than Ready, the graver first.
const (
	WireVersionMismatch = "WireVersionMismatch"
	SVIDExpired         = "SVIDExpired"
	NoIdentity          = "NoIdentity"
	Disconnected        = "Disconnected"
	EnvoyDisconnected   = "EnvoyDisconnected"
	AwaitingSnapshot    = "AwaitingSnapshot"
	Draining            = "Draining"
)

// The names and states of checks.
const (
	CheckIdentity      = "identity"
	CheckStream        = "stream"
	CheckEnvoy         = "envoy"
	CheckConfiguration = "configuration"

	OK     = fleet.CheckOK
	Failed = fleet.CheckFailed
)

// States lists the states.
func States() []string { return []string{NotReady, Ready, Degraded} }

// State is what a proxy says of itself.
type State struct {
	State   string        `json:"state"`
	Reason  string        `json:"reason,omitempty"`
	Since   time.Time     `json:"since"` // of State and Reason
	Version string        `json:"version,omitempty"`
	Checks  []fleet.Check `json:"checks"`
}

// Facts is all that the state follows from.
type Facts struct {
	Configured bool   // a first full snapshot is live in the Envoy that runs, received or restored
	Version    string // the newest for which Envoy has answered
	Refused    int    // resources that Envoy does not accept
	Envoy      bool   // Envoy is connected
	Streaming  bool   // the controller has taken the subscription on
	Skewed     bool   // the wire versions differ
	HasSVID    bool
	Expired    bool  // the SVID
	NoSVID     error // why the newest attempt gave no SVID
	NoStream   error // why there is no stream

	Others []fleet.Check // of other parts of the proxy, with dates of their own; the state does not follow from them
}

// reason is the first thing that is wrong, empty if nothing is.
func (f Facts) reason() string {
	switch {
	case f.Skewed && !f.Streaming:
		return WireVersionMismatch
	case f.Expired:
		return SVIDExpired
	case !f.HasSVID && !f.Configured:
		return NoIdentity
	case !f.Streaming:
		return Disconnected
	case !f.Envoy:
		return EnvoyDisconnected
	case !f.Configured:
		return AwaitingSnapshot
	}
	return ""
}

// Next is the state that follows from the facts when the one before was s. What has
// not changed keeps its date.
func (s State) Next(f Facts, now time.Time) State {
	next := State{State: Ready, Reason: f.reason(), Since: s.Since, Version: f.Version}
	switch {
	case !f.Configured || !f.Envoy:
		next.State = NotReady
	case next.Reason != "":
		next.State = Degraded
	}
	if next.State != s.State || next.Reason != s.Reason {
		next.Since = now
	}
	for _, c := range f.checks() {
		c.Since = now
		if i := slices.IndexFunc(s.Checks, func(o fleet.Check) bool { return o.Name == c.Name }); i >= 0 &&
			s.Checks[i].State == c.State && s.Checks[i].Reason == c.Reason {
			c.Since = s.Checks[i].Since
		}
		next.Checks = append(next.Checks, c)
	}
	next.Checks = append(next.Checks, f.Others...)
	return next
}

// WhileDraining is the state of a proxy that drains since then: NotReady, whatever it was.
func (s State) WhileDraining(since time.Time) State {
	s.State, s.Reason, s.Since = NotReady, Draining, since
	return s
}

// checks tells the condition of each part.
func (f Facts) checks() []fleet.Check {
	var identity, stream, envoy, configuration string
	switch {
	case f.Expired:
		identity = because(SVIDExpired, f.NoSVID)
	case !f.HasSVID:
		identity = because(NoIdentity, f.NoSVID)
	}
	switch {
	case f.Streaming:
	case f.Skewed:
		stream = because(WireVersionMismatch, f.NoStream)
	default:
		stream = because(Disconnected, f.NoStream)
	}
	if !f.Envoy {
		envoy = EnvoyDisconnected
	}
	switch {
	case !f.Configured:
		configuration = AwaitingSnapshot
	case f.Refused > 0:
		configuration = fmt.Sprintf("%d refused", f.Refused)
	}
	return []fleet.Check{
		check(CheckIdentity, identity), check(CheckStream, stream),
		check(CheckEnvoy, envoy), check(CheckConfiguration, configuration),
	}
}

func because(reason string, err error) string {
	if err == nil {
		return reason
	}
	return reason + ": " + err.Error()
}

func check(name, reason string) fleet.Check {
	if reason != "" {
		return fleet.Check{Name: name, State: Failed, Reason: reason}
	}
	return fleet.Check{Name: name, State: OK}
}

// Handler answers /readyz: the current state as JSON, with 503 while NotReady.
func Handler(current func() State) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		s := current()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if s.State == NotReady {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(s) // a prober that is gone needs no answer
	})
}
