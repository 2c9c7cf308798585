// Package memory is what the directory source remembers across restarts, in its state
// directory: its position, which is on disk before it is used; the age and generation of
// each object, and the last good copy of each file, which a goroutine writes afterwards.
// It knows nothing of what is in an object.
package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/watermark"
)

// reserve is how many positions are claimed at a time. A position is on disk before it is
// used, so that a process that is killed never starts again behind what proxies have seen;
// with this many, that is one write at the start.
const reserve = 1 << 20

// The back-off of what could not be written.
const (
	firstRetry = time.Second
	lastRetry  = 10 * time.Second
)

// ErrUnsafe means that there may be a record of positions, which cannot be read, and that it
// cannot be replaced: any position might be one that proxies have seen already, or an epoch
// below theirs.
var ErrUnsafe = errors.New("it is not known which positions are used")

// Position is the epoch and sequence of a state directory. It has one owner.
//
// Where no more can be claimed, because the disk is full say, the position stands still at
// the ceiling of the last claim. That is safe: nobody has seen a position above it, and
// whoever starts next begins there or above. What is lost is that later changes compare as
// later, and only until a claim succeeds.
type Position struct {
	Epoch   uint64 `json:"epoch"`
	Ceiling uint64 `json:"ceiling"` // no position above it has been used

	path string
	next uint64 // the last position used
	mark watermark.Mark

	fault   error // why nothing can be claimed; nil: nothing is wrong
	retryAt time.Time
	wait    time.Duration
	now     func() time.Time                                       // time.Now, but in tests
	write   func(path string, data []byte, mode os.FileMode) error // atomicfile.Write, but in tests
}

// OpenPosition continues after everything that was used before. With no record, or one
// that cannot be read, a new epoch begins: the time, so it is above those before. What made
// it so is lost. The error is ErrUnsafe.
func OpenPosition(path string, now time.Time) (p *Position, lost, err error) {
	p = &Position{path: path, now: time.Now, write: atomicfile.Write}
	return p.open(now)
}

func (p *Position) open(now time.Time) (opened *Position, lost, err error) {
	data, unread := os.ReadFile(p.path)
	err = unread
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	if err == nil && p.Epoch == 0 {
		err = errors.New("no epoch in " + p.path)
	}
	absent := errors.Is(err, fs.ErrNotExist)
	if err != nil {
		if !absent {
			lost = err
		}
		p.Epoch, p.Ceiling = uint64(max(now.UnixMilli(), 1)), 0
	}
	p.next = p.Ceiling
	p.Claim()
	if p.fault != nil && unread != nil && !absent { // a later start may be able to read it
		return nil, lost, fmt.Errorf("%w: %w; %w", ErrUnsafe, unread, p.fault)
	}
	if p.fault == nil {
		p.next++ // the state at the start is itself later than anything before
	} else {
		p.next = max(p.next, 1)
		p.Ceiling = p.next
	}
	p.mark = watermark.Mark{Epoch: p.Epoch, Positions: map[string]uint64{}}
	for _, k := range object.Kinds() {
		p.mark.Positions[string(k)] = p.next
	}
	return p, lost, nil
}

// Claim claims positions if there is none left, or if the last claim is not on disk, unless
// that failed a moment ago.
func (p *Position) Claim() {
	if p.fault == nil && p.next < p.Ceiling || p.now().Before(p.retryAt) {
		return
	}
	ceiling := p.Ceiling
	if p.next >= p.Ceiling {
		ceiling = p.next + reserve
	}
	if p.fault = p.record(ceiling); p.fault != nil {
		p.wait = min(max(2*p.wait, firstRetry), lastRetry)
		p.retryAt = p.now().Add(p.wait)
		return
	}
	p.Ceiling, p.wait, p.retryAt = ceiling, 0, time.Time{}
}

// Rewrite writes the claim again, where the file of the last one may be gone.
func (p *Position) Rewrite() {
	p.fault, p.retryAt = errRewrite, time.Time{} // if it stays so, whoever starts next begins a later epoch
	p.Claim()
}

var errRewrite = errors.New("the last claim is to be written again")

// record writes that no position above a ceiling has been used.
func (p *Position) record(ceiling uint64) error {
	data, err := json.Marshal(Position{Epoch: p.Epoch, Ceiling: ceiling})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.path), 0o700); err != nil {
		return err
	}
	return p.write(p.path, append(data, '\n'), 0o600)
}

// Fault is why nothing can be claimed; nil if nothing is wrong.
func (p *Position) Fault() error { return p.fault }

// Retry is when to try to claim again; zero if nothing is wrong.
func (p *Position) Retry() time.Time { return p.retryAt }

// Mark is the position as others compare it; a copy.
func (p *Position) Mark() watermark.Mark { return p.mark.Clone() }

// Advance uses the next position for a change of an object of that kind, or the last one
// again where none can be claimed.
func (p *Position) Advance(k object.Kind) uint64 {
	p.Claim()
	if p.next < p.Ceiling {
		p.next++
	}
	p.mark.Positions[string(k)] = p.next
	return p.next
}
