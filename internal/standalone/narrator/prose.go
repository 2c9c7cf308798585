package narrator

import (
	"encoding/json"
	"strings"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
)

// prose is an event as a person reads it. What it does not know better than the process
// that told it, it leaves in that process's words.
func prose(e inspect.Event) string {
	kind := journal.Kind(e.Kind)
	if kind == journal.Problem {
		return "! " + e.Message
	}
	var state health.State
	if kind == journal.State && json.Unmarshal(e.Detail, &state) == nil && state.State != "" {
		return stateProse(state)
	}
	if kind == journal.Change {
		s := e.Message
		for _, gone := range goneObjects(e) {
			s = strings.Replace(s, "-"+gone, gone+" (deleted)", 1)
		}
		return s
	}
	return e.Message
}

// stateProse is a proxy's state as a sentence.
func stateProse(s health.State) string {
	switch {
	case s.State == health.NotReady:
		if s.Reason == health.Disconnected {
			return "starting: the proxy connects to the controller"
		}
		return "starting: " + reasonProse(s)
	case s.State == health.Degraded:
		return "degraded: " + reasonProse(s) + "; Envoy serves its last good configuration"
	default:
		return "proxy is " + strings.ToLower(s.State)
	}
}

// reasonProse is why a proxy is in a state.
func reasonProse(s health.State) string {
	switch s.Reason {
	case health.WireVersionMismatch:
		return "the proxy and the controller speak different wire versions"
	case health.SVIDExpired:
		return "the proxy's identity has expired"
	case health.NoIdentity:
		return "the proxy has no identity yet"
	case health.Disconnected:
		return "the proxy is not connected to the controller"
	case health.EnvoyDisconnected:
		return "Envoy is not connected to the proxy"
	case health.AwaitingSnapshot:
		return "the first configuration is not live yet"
	}
	return s.Reason
}

// goneObjects is the objects of a change that are gone, as Kind/namespace/name.
func goneObjects(e inspect.Event) []string {
	var entry struct {
		Objects []string `json:"objects"`
	}
	_ = json.Unmarshal(e.Detail, &entry) // what has no objects names none
	var out []string
	for _, o := range entry.Objects {
		if name, gone := strings.CutPrefix(o, "-"); gone {
			out = append(out, name)
		}
	}
	return out
}
