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
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/watermark"
)

// reserve is how many positions are claimed at a time. A position is on disk before it is
// used, so that a process that is killed never starts again behind what proxies have seen;
// with this many, that is one write at the start.
const reserve = 1 << 20

// Position is the epoch and sequence of a state directory. It has one owner.
type Position struct {
	Epoch   uint64 `json:"epoch"`
	Ceiling uint64 `json:"ceiling"` // no position above it has been used

	path string
	next uint64 // the last position used
	mark watermark.Mark
}

// OpenPosition continues after everything that was used before. With no record, or one
// that cannot be read, a new epoch begins: the time, so it is above those before. The
// error that made it so is lost; another is fatal.
func OpenPosition(path string, now time.Time) (p *Position, lost, err error) {
	p = &Position{path: path}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	if err == nil && p.Epoch == 0 {
		err = errors.New("no epoch in " + path)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			lost = err
		}
		p.Epoch, p.Ceiling = uint64(max(now.UnixMilli(), 1)), 0
	}
	p.next = p.Ceiling
	if err := p.claim(); err != nil {
		return nil, lost, err
	}
	p.next++ // the state at the start is itself later than anything before
	p.mark = watermark.Mark{Epoch: p.Epoch, Positions: map[string]uint64{}}
	for _, k := range object.Kinds() {
		p.mark.Positions[string(k)] = p.next
	}
	return p, lost, nil
}

func (p *Position) claim() error {
	p.Ceiling = p.next + reserve
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(p.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("claim positions: %w", err)
	}
	return nil
}

// Mark is the position as others compare it; a copy.
func (p *Position) Mark() watermark.Mark { return p.mark.Clone() }

// Advance uses the next position for a change of an object of that kind.
func (p *Position) Advance(k object.Kind) (uint64, error) {
	if p.next == p.Ceiling {
		if err := p.claim(); err != nil {
			return 0, err
		}
	}
	p.next++
	p.mark.Positions[string(k)] = p.next
	return p.next, nil
}
