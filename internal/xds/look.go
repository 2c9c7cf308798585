package xds

import (
	"context"
	"net/http"
	"time"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/probe"
)

// question is what the looker is asked, sight what it saw.
type question struct {
	ports []uint32 // asked for by accepted listeners
	alive bool     // Envoy is connected: its admin socket is worth asking
	drain bool     // for how long it drains
}

type sight struct {
	asked   question
	warming []resource.Name // sorted
	bound   []uint32
	err     error // of the admin socket: warming is not known
	portErr error
	drain   time.Duration // negative: not known
}

// look answers questions, one at a time, away from the loop. Exits: ctx is done.
func (s *Server) look(ctx context.Context, questions <-chan question, sights chan<- sight) {
	admin := probe.Admin(s.cfg.AdminSocket)
	defer admin.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-questions:
			v := sight{asked: q, drain: -1}
			if q.alive && s.cfg.AdminSocket != "" {
				v.warming, v.err = probe.Warming(ctx, admin)
				if q.drain {
					v.drain = drainTime(ctx, admin)
				}
			}
			v.bound, v.portErr = probe.Listening(q.ports)
			sights <- v // capacity 1, and no question is asked before it is taken
		}
	}
}

// drainTime is how long Envoy drains; negative if it does not say.
func drainTime(ctx context.Context, admin *http.Client) time.Duration {
	d, err := probe.DrainTime(ctx, admin)
	if err != nil {
		return -1
	}
	return d
}
