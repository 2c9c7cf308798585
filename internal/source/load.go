package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
	"aether.io/aether/internal/source/material"
	"aether.io/aether/internal/source/memory"
	"aether.io/aether/internal/source/tree"
)

// loadAll reads, parses and admits files, several at a time if there are many; the index
// is only read meanwhile. The order of paths is kept.
func (f *following) loadAll(ctx context.Context, paths []string) []loaded {
	out := make([]loaded, len(paths))
	progress := &progress{of: len(paths), tell: f.tell, every: tellEvery, due: time.Now().Add(tellEvery)}
	var group errgroup.Group
	group.SetLimit(runtime.GOMAXPROCS(0))
	for i, p := range paths {
		if len(paths) < 4 {
			out[i] = f.load(ctx, p)
			continue
		}
		group.Go(func() error {
			if ctx.Err() == nil {
				out[i] = f.load(ctx, p)
				progress.step(time.Now())
			}
			return nil
		})
	}
	_ = group.Wait() // each outcome is in out
	return out
}

// tellEvery is how often it is told how far a load is.
const tellEvery = 3 * time.Second

// progress is how far a load is.
type progress struct {
	of    int
	tell  func(done, of int)
	every time.Duration

	mu   sync.Mutex // guards what follows, and is held while telling
	done int
	due  time.Time // when to tell next
}

// step says that one more is done.
func (p *progress) step(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	if now.After(p.due) && p.done < p.of {
		p.due = now.Add(p.every)
		p.tell(p.done, p.of)
	}
}

// load has no effect; index.take takes over what it returns.
func (f *following) load(ctx context.Context, p string) loaded {
	l := loaded{path: p}
	data, err := f.tree.Read(p)
	if errors.Is(err, tree.ErrGone) {
		l.gone = true
		return l
	}
	if err == nil {
		known := f.index.files[p]
		l.sum = sha256.Sum256(data)
		if l.unchanged = known != nil && known.sum == l.sum; l.unchanged {
			return l
		}
		l.documents, err = parse(p, data)
	}
	if syntax, ok := errors.AsType[*manifest.SyntaxError](err); ok {
		l.doc, err = syntax.Document, syntax.Err
	}
	whole := err == nil
	if whole {
		whole = f.admit(ctx, &l)
	} else {
		l.err = fmt.Errorf("cannot be read: %w", err)
	}
	if !whole && !f.synced { // what is wrong now may have been right before the restart
		if objects, err := memory.ReadCopy(f.copies, p); err == nil {
			l.prior = f.admitCopy(ctx, objects)
		}
	}
	return l
}

func parse(p string, data []byte) ([]manifest.Document, error) {
	if strings.EqualFold(path.Ext(p), ".json") {
		return manifest.ParseJSON(data)
	}
	return manifest.Parse(data)
}

// admit decodes the documents of a file, and reports whether all of them are good. Those
// that say what the file said before are not admitted again, so that one object's change
// in a file of many costs one admission.
func (f *following) admit(ctx context.Context, l *loaded) bool {
	l.admitted = make([]manifest.Admitted, len(l.documents))
	l.reuse = make([]*claim, len(l.documents))
	var before map[object.Key]*claim
	if known := f.index.files[l.path]; known != nil {
		before = known.byKey()
	}
	good := true
	for i := range l.documents {
		doc := &l.documents[i]
		if doc.Key == (object.Key{}) {
			good = good && doc.Ignored()
			continue
		}
		// A claim that is not of a document (0) has no findings of one.
		if c := before[doc.Key]; c != nil && c.number > 0 && bytes.Equal(c.raw, doc.Raw) {
			l.reuse[i] = c
			continue
		}
		var old *manifest.Document
		if v := f.index.live[doc.Key]; v != nil && v.raw != nil {
			old = &manifest.Document{Key: doc.Key, Raw: v.raw}
		}
		l.admitted[i] = f.decode(ctx, doc, old)
		good = good && l.admitted[i].Object != nil
	}
	return good
}

// decode refuses what an API server would, and what nobody could use.
func (f *following) decode(ctx context.Context, doc, old *manifest.Document) manifest.Admitted {
	a := f.decoder.Decode(ctx, doc, old)
	if a.Object == nil {
		return a
	}
	if why := material.Problem(a.Object); why != "" {
		a.Object = nil
		a.Findings = append(a.Findings, manifest.Finding{Severity: Refused, Path: "data", Message: why})
	}
	return a
}

// admitCopy makes claims of a last good copy. What is not good any more, because the
// definitions have changed, is left out.
func (f *following) admitCopy(ctx context.Context, objects []byte) []*claim {
	documents, err := manifest.ParseJSON(objects)
	if err != nil {
		return nil
	}
	var out []*claim
	for i := range documents {
		doc := &documents[i]
		if doc.Key == (object.Key{}) {
			continue
		}
		if a := f.decode(ctx, doc, nil); a.Object != nil {
			out = append(out, &claim{key: doc.Key, raw: doc.Raw, good: newVersion(doc.Raw, a)})
		}
	}
	return out
}

// inheritCopies looks, at the start, in the copies of all files for the last good versions
// of objects that are nowhere good any more: a file may have been renamed meanwhile.
func (f *following) inheritCopies(ctx context.Context, t *touched) {
	orphans := f.index.orphans(t)
	if len(orphans) == 0 {
		return
	}
	copies, err := memory.ReadCopies(f.copies)
	if err != nil {
		f.log.Warn("last good copies cannot be read", logkey.Error, err)
		return
	}
	for _, p := range slices.Sorted(maps.Keys(copies)) {
		for _, c := range f.admitCopy(ctx, copies[p]) {
			if orphans[c.key] {
				f.index.inherit(c.key, c.good, t)
				delete(orphans, c.key)
			}
		}
	}
}

// restoreUnder puts back, at the start, the files in folders that cannot be read, from
// their copies. It is an error if the root is one of them and there is no copy at all.
func (f *following) restoreUnder(ctx context.Context, faults map[string]error, t *touched) error {
	copies, err := memory.ReadCopies(f.copies)
	if err != nil {
		return err
	}
	if faults[""] != nil && len(copies) == 0 {
		return fmt.Errorf("read the manifests: %w", faults[""])
	}
	for p, objects := range copies {
		if covered(p, faults) {
			f.index.restore(p, f.admitCopy(ctx, objects), t)
			f.restored[p] = true
		}
	}
	return nil
}

// withRestored is what is to be looked at, with the files that were put back from copies
// once their folder can be read: whether they are there is not known to the tree.
func (f *following) withRestored(seen tree.Seen) []string {
	looks := seen.Look
	for p := range f.restored {
		if covered(p, seen.Faults) {
			continue
		}
		delete(f.restored, p)
		if _, already := slices.BinarySearch(seen.Look, p); !already {
			looks = append(looks, p)
		}
	}
	return looks
}

// covered reports whether a file is in a folder that cannot be read.
func covered(p string, faults map[string]error) bool {
	if faults[""] != nil {
		return true
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if faults[dir] != nil {
			return true
		}
	}
	return false
}
