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

func (e *Engine) flight(ctx context.Context, writes *sync.WaitGroup) bool {
	e.launch(ctx, writes)
	writes.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.ready[0])+len(e.ready[1])+len(e.ready[2]) > 0
}
