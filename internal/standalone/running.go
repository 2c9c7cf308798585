package standalone

import (
	"context"
	"maps"
	"sync"
	"time"

	"aether.io/aether/internal/standalone/narrator"
)

// running is how far the instance has come: what a state directory that is made anew has to say.
type running struct {
	mu    sync.Mutex     // guards what follows
	pids  map[string]int // of each process, as it was started last
	ready bool           // it was told
}

// started notes that a process was started.
func (r *running) started(process string, pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pids[process] = pid
}

// isReady notes that the instance was told to be ready.
func (r *running) isReady() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
}

// now is what there is at the moment.
func (r *running) now() (ready bool, pids map[string]int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready, maps.Clone(r.pids)
}

// readiness has it told when the instance is ready, and what changes from then on, until ctx
// is done. That it is ready is also a file, for programs.
func (in *Instance) readiness(ctx context.Context, n *narrator.Narrator, r *running) error {
	at, err := n.AwaitReady(ctx)
	if err != nil {
		return err
	}
	r.isReady()
	ctx, cancel := context.WithCancel(ctx)
	marked := make(chan struct{})
	go func() {
		defer close(marked)
		keep(ctx, n, in.c.State.Ready(), []byte(at.UTC().Format(time.RFC3339Nano)+"\n"))
	}()
	defer func() { cancel(); <-marked }()
	return n.Watch(ctx)
}
