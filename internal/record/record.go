// Package record remembers, where there are no Services that do, by what parameters each
// Gateway was served last, so that a reference which leads nowhere does not end it, nor
// have it served by defaults (ADR 0020). The graph says what that is (Update), a file keeps it
// for the next process (Run), and it is put before what the source says (Before). It judges no
// Gateway.
package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

// retry is after how long what could not be written is written again.
const retry = time.Second

// Config is what a Record is made from.
type Config struct {
	Path    string      // of the file, readable by its owner only; its directory must exist. Required
	OnFault func(error) // called with why it is not kept; nil: it is. Must not block. Required
}

// Record is of all Gateways. Its methods may be called by any goroutine.
type Record struct {
	c    Config
	wake chan struct{} // capacity 1: something is to be written

	mu       sync.Mutex // guards what follows
	of       map[key.Name]served
	pending  map[key.Name]bool // what Before has not handed out as it is now
	recalled map[key.Name]bool // of an earlier process, and not confirmed; nil: that is over
}

// served is by what a Gateway was served last.
type served struct {
	Gateway    string `json:"gateway"` // namespace/name
	Class      string `json:"class"`
	Parameters string `json:"parameters"` // as a Front has them
}

// New checks c.
func New(c Config) (*Record, error) {
	if c.Path == "" || c.OnFault == nil {
		return nil, errors.New("a record of how Gateways were served needs a file, and whom to tell of its faults")
	}
	return &Record{
		c: c, wake: make(chan struct{}, 1), of: map[key.Name]served{}, pending: map[key.Name]bool{}, recalled: map[key.Name]bool{},
	}, nil
}

// Recall takes what an earlier process left, if it left anything. What can be read is taken
// with an error too. It comes before all else.
func (r *Record) Recall() error {
	text, err := os.ReadFile(r.c.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read how Gateways were served: %w", err)
	}
	var list []served
	if err := json.Unmarshal(text, &list); err != nil {
		return fmt.Errorf("read how Gateways were served in %s: %w", r.c.Path, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var bad []error
	for _, s := range list {
		gw, err := gatewayOf(s)
		if err != nil {
			bad = append(bad, fmt.Errorf("read how Gateways were served in %s: %w", r.c.Path, err))
			continue
		}
		r.of[gw], r.pending[gw], r.recalled[gw] = s, true, true
	}
	return errors.Join(bad...)
}

func gatewayOf(s served) (key.Name, error) {
	k, err := object.ParseKey(string(object.Gateway) + "/" + s.Gateway)
	if err != nil || k.Namespace == "" {
		return key.Name{}, fmt.Errorf("%q is not the name of a Gateway", s.Gateway)
	}
	gw := key.Name{Namespace: k.Namespace, Name: k.Name}
	if _, err := front.Keep(gw, s.Class, s.Parameters); err != nil {
		return key.Name{}, fmt.Errorf("parameters of %s: %w", gw, err)
	}
	return gw, nil
}

// Before returns changes with what is on record, as far as it is not handed out, in front of
// them: it counts when what they say of a Gateway cannot be followed. It is of no use by
// itself, so without changes nothing is returned.
func (r *Record) Before(changes []object.Change) []object.Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(changes) == 0 || len(r.pending) == 0 {
		return changes
	}
	out := make([]object.Change, 0, len(r.pending)+len(changes))
	for _, gw := range slices.SortedFunc(maps.Keys(r.pending), key.Name.Compare) {
		ch := object.Change{Key: gw.Object(front.Kept), Implied: true}
		if s, there := r.of[gw]; there {
			ch, _ = front.Keep(gw, s.Class, s.Parameters) // it was checked, or a Front has it
		}
		out = append(out, ch)
	}
	clear(r.pending)
	return append(out, changes...)
}

// Update takes by what Gateways are served, where it differs; nil: it is none of ours. When
// the first list is complete, what is on record of Gateways that are not there is dropped.
func (r *Record) Update(_ []object.Change, wanted map[key.Name]*front.Front, complete bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changed bool
	put := func(gw key.Name, s served, there bool) {
		if old, was := r.of[gw]; was == there && old == s {
			return
		}
		changed, r.pending[gw] = true, true
		if there {
			r.of[gw] = s
		} else {
			delete(r.of, gw)
		}
	}
	for gw, f := range wanted {
		delete(r.recalled, gw)
		switch {
		case f == nil:
			put(gw, served{}, false)
		case !f.Keep:
			put(gw, served{Gateway: gw.String(), Class: f.Class, Parameters: f.Parameters}, true)
		}
	}
	if complete {
		for gw := range r.recalled {
			put(gw, served{}, false)
		}
		r.recalled = nil
	}
	if changed {
		r.poke()
	}
}

// Rewrite has the file written again: it may be gone.
func (r *Record) Rewrite() { r.poke() }

func (r *Record) poke() {
	select {
	case r.wake <- struct{}{}:
	default: // it will be
	}
}

// Run keeps the file as the record is until ctx is done. What a process that ends in the
// meantime does not write is what the next one does not know.
func (r *Record) Run(ctx context.Context) error {
	var again <-chan time.Time // nil: nothing is to be tried again
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		case <-again:
		}
		again = nil
		err := r.save()
		if r.c.OnFault(err); err != nil {
			again = time.After(retry)
		}
	}
}

func (r *Record) save() error {
	r.mu.Lock()
	list := make([]served, 0, len(r.of))
	for _, gw := range slices.SortedFunc(maps.Keys(r.of), key.Name.Compare) {
		list = append(list, r.of[gw])
	}
	r.mu.Unlock()
	text, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return fmt.Errorf("encode how Gateways are served: %w", err)
	}
	return atomicfile.Write(r.c.Path, append(text, '\n'), 0o600)
}
