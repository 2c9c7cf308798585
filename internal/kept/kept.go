// Package kept is what a controller on Kubernetes remembers of objects that are not admitted
// as they are now: the last good version of each, which is in effect in its place (ADR 0016).
// The source says what that is (Keep); the leader writes it where the next controller finds
// it (Run), sealed, because there are private keys in it; a source reads it before it hands
// out anything (Recall). It judges no object, and knows not who refers to one.
package kept

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/run"
)

// Bounds of what is kept. A pair is about 6 KB.
const (
	MaxObjects = 256
	MaxBytes   = 768 << 10 // of all as JSON, before it is sealed
)

// Keys of the ConfigMap.
const (
	NamesKey  = "objects" // Kind/namespace/name, one a line: for people, and for a new leader
	SealedKey = "sealed"  // what is kept of them
)

const (
	pause = time.Second      // between two writes
	retry = 10 * time.Second // after one that did not succeed
)

// Place is where it is written; a ConfigMap.
type Place interface {
	Await(ctx context.Context) (configmap.Content, error)
	Save(ctx context.Context, c configmap.Content) error
}

// Config is what a Keeper is made from.
type Config struct {
	Place Place // required
	// Key is the 32 bytes that it is sealed with, the same for every replica; an error while
	// there are none. Required.
	Key func() ([]byte, error)
	// Await returns when Key has one, or ctx is done. Required.
	Await func(context.Context) error
	// Used is which of the objects something in effect is made from. Required.
	Used func([]object.Key) map[object.Key]bool
	// Synced reports whether the source has handed out everything once, and Used counts it in.
	// Required.
	Synced  func() bool
	OnFault func(error)  // called with what is not kept, and why; nil: everything is. Must not block
	Log     *slog.Logger // nil: none
}

// Keeper keeps last good versions. Keep, Recall and Look may be called by any goroutine.
type Keeper struct {
	c    Config
	wake chan struct{} // capacity 1: something may be to be written

	mu      sync.Mutex // guards what follows
	behind  map[object.Key]object.Object
	fault   run.Fault
	written map[object.Key]bool // what is at the place, as far as this process knows
}

// New checks c.
func New(c Config) (*Keeper, error) {
	if c.Place == nil || c.Key == nil || c.Await == nil || c.Used == nil || c.Synced == nil {
		return nil, errors.New("a keeper of last good versions needs a place, a key, and what is in use")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.OnFault == nil {
		c.OnFault = func(error) {}
	}
	return &Keeper{c: c, wake: make(chan struct{}, 1), behind: map[object.Key]object.Object{}, written: map[object.Key]bool{}}, nil
}

// Keep says that o is in effect in the place of what is written under k now, or with nil
// that nothing is any more: the object is good, or gone. o is not changed any more.
func (k *Keeper) Keep(key object.Key, o object.Object) {
	k.mu.Lock()
	if o == nil {
		delete(k.behind, key)
	} else {
		k.behind[key] = o
	}
	k.mu.Unlock()
	k.Look()
}

// Look has it looked whether something is to be written: what is used, or the key, may have changed.
func (k *Keeper) Look() {
	select {
	case k.wake <- struct{}{}:
	default: // it will be
	}
}

// Recall returns what an earlier process left. It returns when the API has answered and, if
// something is kept, there is a key. What can be read is returned with an error too, which
// is for people, unless it is ctx's.
func (k *Keeper) Recall(ctx context.Context) (map[object.Key]object.Object, error) {
	content, err := k.c.Place.Await(ctx)
	if err != nil {
		return nil, err
	}
	k.note(content)
	sealed := content.Binary[SealedKey]
	if len(sealed) == 0 {
		return nil, nil //nolint:nilnil // a nil map is an empty one
	}
	if err := k.c.Await(ctx); err != nil {
		return nil, err
	}
	key, err := k.c.Key()
	if err != nil {
		return nil, fmt.Errorf("open last good versions: %w", err)
	}
	text, err := open(key, sealed)
	if err != nil {
		return nil, fmt.Errorf("open last good versions: %w", err)
	}
	var records []record
	if err := json.Unmarshal(text, &records); err != nil {
		return nil, errors.New("read last good versions: they are of another form")
	}
	out := make(map[object.Key]object.Object, len(records))
	var bad []error
	for _, r := range records {
		at, o, err := r.decode()
		if err != nil {
			bad = append(bad, fmt.Errorf("read last good version: %w", err))
			continue
		}
		out[at] = o
	}
	return out, errors.Join(bad...)
}

// note takes over which objects are at the place.
func (k *Keeper) note(c configmap.Content) {
	written := map[object.Key]bool{}
	for line := range strings.Lines(c.Text[NamesKey]) {
		if at, err := object.ParseKey(strings.TrimSuffix(line, "\n")); err == nil {
			written[at] = true
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.written = written
}

// Run writes until ctx is done. It is for the leader; each time it leads, what is at the
// place is looked at anew: others wrote meanwhile.
func (k *Keeper) Run(ctx context.Context) error {
	content, err := k.c.Place.Await(ctx)
	if err != nil {
		return err
	}
	k.note(content)
	last := ""
	var fault run.Fault
	// Exits: ctx is done.
	for {
		wait := pause
		if k.c.Synced() {
			err = k.write(ctx, &last)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		news := fault.Becomes(err)
		if err != nil {
			wait = retry
			if news {
				k.c.Log.Error("write last good versions; will retry", logkey.Error, err, logkey.Wait, retry)
			}
			k.tell(fmt.Errorf("a restart would lose them: %w", err))
		}
		if k.sleep(ctx, wait, err == nil) != nil {
			return ctx.Err()
		}
	}
}

// sleep waits for d, and then, if quiet, until something may be to be written.
func (k *Keeper) sleep(ctx context.Context, d time.Duration, quiet bool) error {
	if err := run.Sleep(ctx, d); err != nil || !quiet {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-k.wake:
		return nil
	}
}

// write brings the place up to date, if it is not; last is what was written last.
func (k *Keeper) write(ctx context.Context, last *string) error {
	text, names, left, err := k.choose()
	if err != nil {
		return err
	}
	content := configmap.Content{}
	this := ""
	if len(names) > 0 {
		key, err := k.c.Key()
		if err != nil {
			return err
		}
		if this = string(key) + string(text); this == *last {
			k.tell(left)
			return nil
		}
		sealed, err := seal(key, text)
		if err != nil {
			return err
		}
		content = configmap.Content{Text: map[string]string{NamesKey: lines(names)}, Binary: map[string][]byte{SealedKey: sealed}}
	}
	k.mu.Lock()
	clean := len(names) == 0 && len(k.written) == 0
	k.mu.Unlock()
	if !clean {
		if err := k.c.Place.Save(ctx, content); err != nil {
			return err
		}
		k.note(content)
	}
	*last = this
	k.tell(left)
	return nil
}

// choose is what is to be kept, as it is sealed, and whose it is; left says what there is no
// room for. An object that is kept stays until it is good or gone, whoever refers to it;
// else only what is in use is kept.
func (k *Keeper) choose() (text []byte, names []object.Key, left, err error) {
	k.mu.Lock()
	behind, written := maps.Clone(k.behind), k.written
	k.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(behind), object.Key.Compare)
	if len(keys) == 0 {
		return nil, nil, nil, nil
	}
	used := k.c.Used(keys)
	keys = slices.DeleteFunc(keys, func(at object.Key) bool { return !used[at] && !written[at] })
	slices.SortStableFunc(keys, func(a, b object.Key) int { return rank(used[a]) - rank(used[b]) })
	var records []json.RawMessage
	var without []string
	size := 0
	for _, at := range keys {
		r, err := encode(at, behind[at])
		if err != nil {
			return nil, nil, nil, err
		}
		one, err := json.Marshal(r)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("keep %s: %w", at, err)
		}
		if len(records) == MaxObjects || size+len(one) > MaxBytes {
			without = append(without, at.String())
			continue
		}
		size += len(one)
		records, names = append(records, one), append(names, at)
	}
	if text, err = json.Marshal(records); err != nil {
		return nil, nil, nil, fmt.Errorf("keep last good versions: %w", err)
	}
	if len(without) > 0 {
		left = fmt.Errorf("a restart loses the last good versions of %d objects, which do not fit (at most %d, and %d bytes), the first: %s",
			len(without), MaxObjects, MaxBytes, without[0])
	}
	return text, names, left, nil
}

// rank puts what is in use first.
func rank(used bool) int {
	if used {
		return 0
	}
	return 1
}

func lines(keys []object.Key) string {
	var out strings.Builder
	for _, k := range keys {
		out.WriteString(k.String() + "\n")
	}
	return out.String()
}

// tell tells of a fault when it becomes another, and when it is over.
func (k *Keeper) tell(err error) {
	k.mu.Lock()
	news := k.fault.Becomes(err)
	k.mu.Unlock()
	if news {
		k.c.OnFault(err)
	}
}
