package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/election"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/svid"
)

const (
	// leaseName is the Lease in the release namespace that the leader holds.
	leaseName = "aether-controller"
	// stepDown is how long what the leader does may take to stop. What takes longer is broken:
	// the calls that it makes end with their context.
	stepDown = 20 * time.Second
)

// elect is the part that stands for election and runs what only the leader does, while the
// release may act. Without an election this is the only replica, and leads all that time.
func (c *controller) elect(client *rest.Config, leading []run.Part) (run.Part, error) {
	lead := func(ctx context.Context) error { return run.All(ctx, c.log, stepDown, leading...) }
	if !c.f.leaderElect {
		return run.Part{Name: "leader", Run: func(ctx context.Context) error { return c.claim.While(ctx, lead) }}, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return run.Part{}, fmt.Errorf("name of this replica: %w", err)
	}
	lease, err := election.Lease(client, c.f.releaseNamespace, leaseName, host+"_"+rand.Text())
	if err != nil {
		return run.Part{}, err
	}
	e, err := election.New(election.Config{
		Lock: lease, Lead: lead, Log: c.log, Registerer: c.metrics,
		OnReach: func(err error) { c.problems.setLease("Lease/"+c.f.releaseNamespace+"/"+leaseName, err) },
		OnChange: func(leading bool) {
			text := "this replica leads no more"
			if leading {
				text = "this replica leads"
			}
			c.moments.Add(time.Now(), journal.State, text, nil)
		},
	})
	if err != nil {
		return run.Part{}, err
	}
	return run.Part{Name: "election", Run: func(ctx context.Context) error { return c.claim.While(ctx, e.Run) }}, nil
}

// reign is the leader's part that has those write who go on without writing else. All that
// there is to write is looked at: others wrote meanwhile, or nobody.
func (c *controller) reign(term *election.Term) run.Part {
	return run.Part{Name: "term", Run: func(ctx context.Context) error {
		defer c.statuses.Lead(false)
		return term.Run(ctx, func() {
			c.statuses.Lead(true)
			c.ca.Look()
			c.pipeline.Save()
		})
	}}
}

// leaderSink has statuses written in the leader's term only. The engine is told when that
// is; here it is made sure of.
type leaderSink struct {
	status.Sink
	term *election.Term
}

// Write implements status.Sink.
func (s leaderSink) Write(ctx context.Context, d status.Document) (wrote bool, err error) {
	_, err = s.term.Do(ctx, func(ctx context.Context) error {
		wrote, err = s.Sink.Write(ctx, d)
		return err
	})
	return wrote, err
}

// Remove implements status.Sink.
func (s leaderSink) Remove(ctx context.Context, k object.Key, uid types.UID) error {
	_, err := s.term.Do(ctx, func(ctx context.Context) error { return s.Sink.Remove(ctx, k, uid) })
	return err
}

// leaderPublisher has the trust bundle published in the leader's term only.
type leaderPublisher struct {
	ca.Publisher
	term *election.Term
}

// Publish implements ca.Publisher.
func (p leaderPublisher) Publish(ctx context.Context, b svid.Bundle) error {
	_, err := p.term.Do(ctx, func(ctx context.Context) error { return p.Publisher.Publish(ctx, b) })
	return err
}
