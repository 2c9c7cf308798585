package status

import (
	"context"
	"sync"
)

// Step does once what Run does each time that it looks, and waits for the writes.
func (e *Engine) Step(ctx context.Context) {
	e.recount()
	e.look()
	var writes sync.WaitGroup
	for e.flight(ctx, &writes) { // left when there is nothing to write
	}
}

// flight begins writes, waits for them, and reports whether more may begin.
func (e *Engine) flight(ctx context.Context, writes *sync.WaitGroup) bool {
	e.launch(ctx, writes)
	writes.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	rationed := e.c.Now().Before(e.follow.next())
	return len(e.ready[ownRank])+len(e.ready[manyRank])+len(e.ready[minorRank]) > 0 || len(e.ready[followRank]) > 0 && !rationed
}
