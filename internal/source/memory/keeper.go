package memory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
)

// lull is how long a Keeper leaves the disk alone after it was told of something: what
// is made of the change comes first.
const lull = 20 * time.Millisecond

// Keeper writes to the state directory what must outlive the process: records of objects
// and the last good copies of files. It does so in a goroutine of its own, so that no
// batch waits for it; what it has not written when the process is killed is as if it had
// happened after the kill. What cannot be written stays pending and is tried again. A
// position is never kept this way.
type Keeper struct {
	journal string // file of records
	copies  string // directory of copies
	log     *slog.Logger
	wake    chan struct{} // capacity 1: something is pending
	news    chan struct{} // capacity 1: Fault has changed
	stop    chan struct{} // closed by Close
	done    chan struct{} // closed when Run has returned

	mu      sync.Mutex // guards what follows
	records map[object.Key]Record
	files   map[string][][]byte // by path; nil removes the copy
	all     map[object.Key]Record
	prune   map[string]bool // names of the copies to keep, once
	fault   error           // why something is not written
	rewrite bool            // the journal is to be written anew

	lines int // of the journal; Run's own
}

// KeeperConfig is what a Keeper is made from.
type KeeperConfig struct {
	Journal string                 // file of records
	Copies  string                 // directory of copies; made when first needed
	Records map[object.Key]*Record // as read from the journal
	Lines   int                    // of the journal; more than it has makes it be written anew
	Log     *slog.Logger           // nil: none
}

// NewKeeper returns a Keeper whose Run must be started once, and ended by Close.
func NewKeeper(cfg KeeperConfig) *Keeper {
	k := &Keeper{
		journal: cfg.Journal, copies: cfg.Copies, lines: cfg.Lines, log: cfg.Log,
		wake: make(chan struct{}, 1), news: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
		records: map[object.Key]Record{}, files: map[string][][]byte{}, all: map[object.Key]Record{},
	}
	if k.log == nil {
		k.log = slog.New(slog.DiscardHandler)
	}
	for key, r := range cfg.Records {
		k.all[key] = *r
	}
	return k
}

// Fault is why something is not on disk; nil if nothing is wrong.
func (k *Keeper) Fault() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fault
}

// News has a value when Fault has changed.
func (k *Keeper) News() <-chan struct{} { return k.news }

// KeepRecord remembers a record; the keeper has its own copy.
func (k *Keeper) KeepRecord(key object.Key, r Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.records[key] = r
	if r.Gone {
		delete(k.all, key)
	} else {
		k.all[key] = r
	}
}

// KeepFile remembers what is good of a file; nothing forgets the file.
func (k *Keeper) KeepFile(path string, raws [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.files[path] = raws
}

// Rewrite writes all records again, where the journal may be gone.
func (k *Keeper) Rewrite() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rewrite = true
}

// KeepOnly removes the copies of all other files.
func (k *Keeper) KeepOnly(paths []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.prune = map[string]bool{}
	for _, p := range paths {
		k.prune[copyName(p)] = true
	}
}

// Notify has what is pending written soon.
func (k *Keeper) Notify() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Close writes what is pending and waits for Run.
func (k *Keeper) Close() {
	close(k.stop)
	<-k.done
}

// Run writes until Close; it always leaves with everything written, or its failure told.
func (k *Keeper) Run() {
	defer close(k.done)
	var retry <-chan time.Time // nil: all that was pending is written
	wait := firstRetry
	// Exits: stopped, with nothing pending.
	for stopped := false; !stopped; {
		select {
		case <-k.stop:
			stopped = true
		case <-retry:
		case <-k.wake:
			if retry != nil { // that will have it too
				continue
			}
			select {
			case <-k.stop:
				stopped = true
			case <-time.After(lull):
			}
		}
		if k.tell(k.write()); k.Fault() == nil {
			retry, wait = nil, firstRetry
			continue
		}
		retry = time.After(wait)
		wait = min(2*wait, lastRetry)
	}
}

// write writes all that is pending. What fails is pending again, unless there is newer.
func (k *Keeper) write() error {
	k.mu.Lock()
	records, files, prune := k.records, k.files, k.prune
	k.records, k.files, k.prune = map[object.Key]Record{}, map[string][][]byte{}, nil
	k.mu.Unlock()
	var fault error
	if err := k.append(records); err != nil {
		fault = fmt.Errorf("write %s: %w", k.journal, cause(err))
		k.mu.Lock()
		again(k.records, records)
		k.mu.Unlock()
	}
	if prune != nil { // first: files may have come since then
		if err := k.pruneCopies(prune); err != nil {
			k.log.Warn("copies of files that are gone are left behind", logkey.File, k.copies, logkey.Error, err)
		}
	}
	failed := map[string][][]byte{}
	for _, path := range slices.Sorted(maps.Keys(files)) {
		if err := k.copy(path, files[path]); err != nil {
			failed[path] = files[path]
			fault = cmp.Or(fault, fmt.Errorf("keep a copy of %s in %s: %w", path, k.copies, cause(err)))
		}
	}
	k.mu.Lock()
	again(k.files, failed)
	k.mu.Unlock()
	return fault
}

// again adds to what is pending what was not written.
func again[K comparable, V any](pending, failed map[K]V) {
	for key, v := range failed {
		if _, newer := pending[key]; !newer {
			pending[key] = v
		}
	}
}

// cause is an error without the names of files that nobody knows.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	if l, ok := errors.AsType[*os.LinkError](err); ok {
		return l.Err
	}
	return err
}

// tell says that something cannot be written, or that all is written again.
func (k *Keeper) tell(fault error) {
	k.mu.Lock()
	before := k.fault
	k.fault = fault
	k.mu.Unlock()
	switch {
	case fault == nil && before == nil, fault != nil && before != nil && fault.Error() == before.Error():
		return
	case fault == nil:
		k.log.Info("what the source remembers is on disk again")
	default:
		k.log.Warn("what the source remembers is not up to date on disk", logkey.Error, fault)
	}
	select {
	case k.news <- struct{}{}:
	default:
	}
}

// append adds records to the journal, or writes it anew when most of it is history.
func (k *Keeper) append(records map[object.Key]Record) error {
	k.mu.Lock()
	if len(records) == 0 && !k.rewrite {
		k.mu.Unlock()
		return nil
	}
	rewrite := k.rewrite || k.lines+len(records) > 2*len(k.all)+1024
	if rewrite {
		records = maps.Clone(k.all)
	}
	k.mu.Unlock()
	var lines bytes.Buffer
	for _, key := range slices.SortedFunc(maps.Keys(records), object.Key.Compare) {
		line, err := json.Marshal(records[key])
		if err != nil {
			return err
		}
		lines.Write(append(line, '\n'))
	}
	if err := os.MkdirAll(filepath.Dir(k.journal), 0o700); err != nil {
		return err
	}
	if rewrite {
		if err := replaceFile(k.journal, lines.Bytes()); err != nil {
			return err
		}
		k.lines = len(records)
		k.mu.Lock()
		k.rewrite = false
		k.mu.Unlock()
		return nil
	}
	f, err := os.OpenFile(k.journal, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(lines.Bytes())
	if err = errors.Join(err, f.Close()); err != nil {
		k.lines = math.MaxInt32 // its last line may be a part of one: it is written anew
		return err
	}
	k.lines += len(records)
	return nil
}

func (k *Keeper) copy(path string, raws [][]byte) error {
	name := filepath.Join(k.copies, copyName(path))
	if len(raws) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	data, err := encodeCopy(path, raws)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.copies, 0o700); err != nil {
		return err
	}
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return replaceFile(name, data)
}

func (k *Keeper) pruneCopies(keep map[string]bool) error {
	entries, err := os.ReadDir(k.copies)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if isCopy(e.Name()) && !keep[e.Name()] {
			err = errors.Join(err, os.Remove(filepath.Join(k.copies, e.Name())))
		}
	}
	return err
}
