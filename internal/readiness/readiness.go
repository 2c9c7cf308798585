// Package readiness says whether a process can do its work, and which of its parts cannot.
// It looks at nothing itself: each part answers for itself when it is asked.
package readiness

import (
	"encoding/json"
	"net/http"
)

// Part is one thing that a process needs to do its work.
type Part struct {
	Name string
	// Lacks returns why the part is not ready, nil if it is. It must not block.
	Lacks func() error
}

// The states of a check.
const (
	OK     = "ok"
	Failed = "failed"
)

// Report is what is answered.
type Report struct {
	Ready  bool    `json:"ready"`
	Checks []Check `json:"checks"`
}

// Check is what one part says.
type Check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// Of asks each part.
func Of(parts []Part) Report {
	r := Report{Ready: true, Checks: make([]Check, 0, len(parts))}
	for _, p := range parts {
		c := Check{Name: p.Name, State: OK}
		if err := p.Lacks(); err != nil {
			c.State, c.Reason, r.Ready = Failed, err.Error(), false
		}
		r.Checks = append(r.Checks, c)
	}
	return r
}

// Handler answers with a Report as JSON, and with 503 while a part is not ready.
func Handler(parts ...Part) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		r := Of(parts)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !r.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(r) // who is gone needs no answer
	})
}
