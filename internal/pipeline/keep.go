package pipeline

import (
	"context"
	"time"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
)

// Recall takes up the convictions that an earlier process left in the store. It comes
// before the first Apply. What can be used of them is used also with an error, which is
// for people: its price is that what was convicted is searched for once more, and left
// out where no earlier version of it is known.
func (p *Pipeline) Recall(ctx context.Context) error {
	if p.c.Store == nil {
		return nil
	}
	convicted, err := p.c.Store.Load(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kept, p.known = convicted, true
	p.court.Recall(convicted)
	return err
}

// Save has who is convicted saved, whether it has changed or not: what is in the store is
// somebody else's. Before what is there was read it does nothing.
func (p *Pipeline) Save() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known {
		return
	}
	select {
	case p.unsaved <- struct{}{}:
	default: // it will be
	}
}

// keep saves who is convicted whenever that has changed, until ctx is done. Nothing waits
// for it.
func (p *Pipeline) keep(ctx context.Context) {
	if p.c.Store == nil {
		return
	}
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var fault run.Fault
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.unsaved:
		case <-retry.C:
		}
		p.mu.Lock()
		convicted := p.kept
		p.mu.Unlock()
		retry.Stop()
		err := p.c.Store.Save(ctx, convicted)
		news := fault.Becomes(err)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return
		case news:
			p.c.Log.Error("save which objects are quarantined; will retry", logkey.Error, err, logkey.Wait, p.c.Retry)
		}
		retry.Reset(p.c.Retry)
	}
}
