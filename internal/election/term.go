package election

import (
	"context"
	"sync"
)

// Term is the time in which this replica leads, for those who work all the time and do a
// part of it only then. It is one of the things that a leader runs. The zero Term is ready
// for use, and not begun.
type Term struct {
	mu    sync.Mutex // guards what follows
	begun bool
	last  uint64
	calls map[uint64]context.CancelFunc // under way
	idle  chan struct{}                 // made when the term ends, closed when no call is under way
}

// Do calls f if the term has begun, with a context that is done when the term ends. It
// reports whether it did.
func (t *Term) Do(ctx context.Context, f func(ctx context.Context) error) (did bool, err error) {
	t.mu.Lock()
	if !t.begun {
		t.mu.Unlock()
		return false, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	t.last++
	call := t.last
	if t.calls == nil {
		t.calls = map[uint64]context.CancelFunc{}
	}
	t.calls[call] = cancel
	t.mu.Unlock()
	defer func() {
		cancel()
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.calls, call)
		if t.idle != nil && len(t.calls) == 0 {
			close(t.idle)
			t.idle = nil
		}
	}()
	return true, f(ctx)
}

// Begun reports whether the term has begun and has not ended.
func (t *Term) Begun() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.begun
}

// Run is the term: it begins, begin is called, and it ends when ctx is done, and no call is
// under way any more.
func (t *Term) Run(ctx context.Context, begin func()) error {
	t.mu.Lock()
	t.begun = true
	t.mu.Unlock()
	begin()
	<-ctx.Done()
	if idle := t.end(); idle != nil {
		<-idle // calls end with their contexts, which are done
	}
	return ctx.Err()
}

// end begins no call any more and has those under way end. What it returns is closed when
// they have; nil: there is none.
func (t *Term) end() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.begun = false
	if len(t.calls) == 0 {
		return nil
	}
	t.idle = make(chan struct{})
	for _, cancel := range t.calls {
		cancel()
	}
	return t.idle
}
