package source

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/disk"
	"aether.io/aether/internal/source/manifest"
	"aether.io/aether/internal/source/memory"
	"aether.io/aether/internal/source/tree"
)

// DirectoryConfig is what a Directory is made from.
type DirectoryConfig struct {
	Dir       string         // the manifests
	StateDir  string         // D; source/ and last-good/ in it are the source's. It must not be inside Dir, except hidden
	Validator *crd.Validator // nil: the embedded definitions
	Log       *slog.Logger   // nil: none
	// Progress is told of a load that takes long, every few seconds, how many of its files are
	// done; from any goroutine, one call at a time. nil: nobody.
	Progress func(done, of int)
	Now      func() time.Time // nil: time.Now; for creation times and problems
}

// Directory is a source of manifests in a directory.
//
// A manifest's own uid, resourceVersion, generation and creationTimestamp are dropped, as
// an API server does: an object is as old as this state directory knows it, and its
// generation counts the changes of all but its metadata.
type Directory struct {
	dir, state, journal, copies, position string

	decoder *manifest.Decoder
	disk    disk.Config // how manifests are looked at; only tests change it
	tell    func(done, of int)
	rewrite chan struct{} // capacity 1: the state directory is another one
	log     *slog.Logger
	now     func() time.Time
}

// NewDirectory checks cfg and compiles nothing yet. crd.ErrMissing if the binary lacks
// the Gateway API's definitions.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	if cfg.Dir == "" || cfg.StateDir == "" {
		return nil, errors.New("a directory source needs a directory of manifests and one for its state")
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	state, err := filepath.Abs(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	if inside, err := filepath.Rel(dir, state); err == nil && !strings.HasPrefix(inside, "..") && !strings.HasPrefix(inside, ".") {
		return nil, fmt.Errorf("state directory %s is among the manifests in %s", state, dir)
	}
	if dir == state {
		return nil, fmt.Errorf("state directory %s is that of the manifests", state)
	}
	if cfg.Validator == nil {
		if cfg.Validator, err = crd.New(); err != nil {
			return nil, err
		}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Progress == nil {
		cfg.Progress = func(int, int) {}
	}
	return &Directory{
		dir:      dir,
		state:    state,
		journal:  filepath.Join(state, "source", "objects.jsonl"),
		position: filepath.Join(state, "source", "position.json"),
		copies:   filepath.Join(state, "last-good"),
		decoder:  manifest.NewDecoder(cfg.Validator),
		log:      cfg.Log, now: cfg.Now, tell: cfg.Progress, rewrite: make(chan struct{}, 1),
	}, nil
}

// Rewrite has all that is remembered written again, because the state directory was made anew.
func (d *Directory) Rewrite() {
	select {
	case d.rewrite <- struct{}{}:
	default: // it will be
	}
}

// Run reads the directory and then follows it until ctx is done, which is no error. It
// calls sink from this goroutine only: first with everything, then with each change, at
// once if sink is idle and together with what else came meanwhile if not. It returns
// early with sink's error, if it is not safe to use the state directory (memory.ErrUnsafe), or if at the start there is
// neither a directory nor anything remembered of one.
func (d *Directory) Run(ctx context.Context, sink func(context.Context, Batch) error) error {
	f, err := d.open()
	if err != nil {
		return err
	}
	defer f.close()
	for {
		batch, next, err := f.next(ctx)
		if err == nil && batch != nil {
			err = sink(ctx, *batch)
		}
		f.keeper.Notify() // after the sink: what is kept may wait
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		timer := time.NewTimer(next)
		// Exits: ctx is done; something changed; something is due.
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-f.tree.Wake():
		case <-f.keeper.News():
		case <-d.rewrite:
			f.rewriteAll()
		case <-timer.C:
		}
		timer.Stop()
	}
}

// following is one Run under way.
type following struct {
	*Directory
	tree     *tree.Tree
	index    *index
	records  map[object.Key]*memory.Record
	position *memory.Position
	keeper   *memory.Keeper
	rank     map[object.Kind]int

	synced   bool
	problems []Problem       // sorted; shared with batches, replaced when something changes
	restored map[string]bool // files known only by their copies, in folders that cannot be read
}

func (d *Directory) open() (*following, error) {
	if err := os.MkdirAll(d.state, 0o700); err != nil {
		return nil, fmt.Errorf("open the state of the source: %w", err)
	}
	position, lost, err := memory.OpenPosition(d.position, d.now())
	if err != nil {
		return nil, fmt.Errorf("open the state of the source: %w", err)
	}
	if lost != nil {
		d.log.Warn("the source's position is lost, a new epoch begins", logkey.File, d.position, logkey.Error, lost)
	}
	records, lines, bad, err := memory.ReadRecords(d.journal)
	if err == nil && bad > 0 {
		err = fmt.Errorf("%d of %d lines cannot be read", bad, lines)
	}
	if err != nil {
		d.log.Warn("some of what was remembered of objects is lost", logkey.File, d.journal, logkey.Error, err)
		lines = math.MaxInt32 // makes the keeper write it anew
	}
	// A link to what the state is in must not make what is remembered be read as manifests.
	t, err := tree.Open(tree.Config{Root: d.dir, Except: d.state, Disk: d.disk})
	if err != nil {
		return nil, err
	}
	f := &following{
		Directory: d, tree: t, index: newIndex(), records: records, position: position,
		keeper: memory.NewKeeper(memory.KeeperConfig{Journal: d.journal, Copies: d.copies, Records: records, Lines: lines, Log: d.log}),
		rank:   ranks(), restored: map[string]bool{},
	}
	go f.keeper.Run()
	return f, nil
}

func (f *following) close() {
	f.tree.Close()
	f.keeper.Close()
}

// next takes what the tree has to say. The batch is nil if nothing changed; wait is how
// long to do nothing if nothing happens.
func (f *following) next(ctx context.Context) (batch *Batch, wait time.Duration, err error) {
	seen, first, now := f.tree.Take(), !f.synced, f.now()
	touched := newTouched()
	if first && len(seen.Faults) > 0 {
		if err := f.restoreUnder(ctx, seen.Faults, touched); err != nil {
			return nil, 0, err
		}
	}
	load := f.loadAll(ctx, f.withRestored(seen))
	if err := ctx.Err(); err != nil { // not everything was loaded
		return nil, 0, err
	}
	var files []string
	for i := range load {
		if f.index.take(load[i], touched) {
			files = append(files, load[i].path)
		}
	}
	for _, path := range seen.Fading {
		f.index.fade(path, touched)
	}
	if first {
		f.inheritCopies(ctx, touched)
	}
	settled := f.index.settle(touched)
	for _, path := range files {
		f.keepFile(path)
	}
	for path := range touched.heirs {
		f.keepFile(path)
	}
	changes := f.emit(settled, now)
	problems := f.index.review(touched, now)
	problems = f.reviewFaults(seen.Faults, now) || problems
	problems = f.reviewState(now) || problems
	if first {
		f.forget()
	}
	wait = time.Hour
	if !seen.Next.IsZero() {
		wait = max(0, time.Until(seen.Next))
	}
	if again := f.position.Retry(); !again.IsZero() {
		wait = min(wait, max(0, time.Until(again)))
	}
	f.synced = true
	if !first && !problems && len(changes) == 0 {
		return nil, wait, nil
	}
	if problems {
		f.problems = sortedProblems(f.index.problems)
	}
	noticed := seen.First
	if noticed.IsZero() {
		noticed = now
	}
	return &Batch{
		Changes: changes, Mark: f.position.Mark(), Synced: true,
		Problems: f.problems, Files: files, Noticed: noticed,
	}, wait, nil
}

// emit gives what is newly in effect the metadata that a server sets.
func (f *following) emit(replacements []replaced, now time.Time) []object.Change {
	changes := make([]object.Change, 0, len(replacements))
	for _, r := range replacements {
		changes = append(changes, object.Change{Key: r.key, Refused: r.refused, Implied: r.implied()})
	}
	slices.SortFunc(changes, compareChanges(f.rank)) // so that positions follow the order too
	versions := make(map[object.Key]*version, len(replacements))
	for _, r := range replacements {
		versions[r.key] = r.now
	}
	for i := range changes {
		key := changes[i].Key
		at := f.position.Advance(key.Kind)
		v := versions[key]
		if v == nil {
			if f.records[key] != nil {
				delete(f.records, key)
				f.keeper.KeepRecord(key, memory.Record{Key: key.String(), Gone: true})
			}
			continue
		}
		r := f.records[key]
		if r == nil {
			r = &memory.Record{Key: key.String()}
			f.records[key] = r
		}
		before := *r
		r.Update(v.content, now)
		if *r != before {
			f.keeper.KeepRecord(key, *r)
		}
		changes[i].Object = v.stamped(r, at)
	}
	return changes
}

// stamped is the version's object with the metadata of its record.
func (v *version) stamped(r *memory.Record, at uint64) object.Object {
	o := v.object
	if v.shared { // it has been in effect before, and whoever has it must not see it change
		o = o.DeepCopyObject().(object.Object)
	}
	v.object, v.shared = o, true
	o.SetUID(r.UID())
	o.SetGeneration(r.Generation)
	o.SetCreationTimestamp(metav1.NewTime(r.Created))
	o.SetResourceVersion(fmt.Sprint(at))
	return o
}

// forget drops the records of objects that went while nobody looked.
func (f *following) forget() {
	for key := range f.records {
		if f.index.live[key] == nil {
			delete(f.records, key)
			f.keeper.KeepRecord(key, memory.Record{Key: key.String(), Gone: true})
		}
	}
	f.keeper.KeepOnly(slices.Collect(maps.Keys(f.index.files)))
}

// rewriteAll writes again what must outlive the process.
func (f *following) rewriteAll() {
	f.position.Rewrite()
	f.keeper.Rewrite()
	for path := range f.index.files {
		f.keepFile(path)
	}
}

// keepFile has the good versions of a file kept across restarts.
func (f *following) keepFile(path string) {
	file := f.index.files[path]
	if file == nil {
		f.keeper.KeepFile(path, nil)
		return
	}
	var raws [][]byte
	for _, c := range file.claims {
		if c.good != nil {
			raws = append(raws, c.good.raw)
		}
	}
	f.keeper.KeepFile(path, raws)
}

// reviewFaults keeps the problems of folders that cannot be followed.
func (f *following) reviewFaults(faults map[string]error, now time.Time) bool {
	changed := false
	for path := range f.index.problems {
		if folder, ok := strings.CutSuffix(path, "/"); ok && faults[folder] == nil {
			changed = setProblems(f.index.problems, path, nil, nil, now) || changed
		}
	}
	for folder, err := range faults {
		p := Problem{Severity: Refused, File: folder, Message: fmt.Sprintf("%v; what was last read from it stays in effect", err)}
		changed = setProblems(f.index.problems, folder+"/", []Problem{p}, nil, now) || changed
	}
	return changed
}

// reviewState keeps the problems of the state directory. They are under a name that no file
// and no folder has.
func (f *following) reviewState(now time.Time) bool {
	const key = "state"
	var problems []Problem
	add := func(err error, consequence string) {
		if err != nil {
			problems = append(problems, Problem{Severity: Warning, File: f.state, Message: err.Error() + "; " + consequence})
		}
	}
	f.position.Claim()
	add(f.position.Fault(), "manifests are followed, and it is tried again; until then proxies cannot tell which of two changes came later")
	add(f.keeper.Fault(), "manifests are followed, and it is tried again; if Aether restarts before, objects have the age and the last good version of before")
	return setProblems(f.index.problems, key, problems, nil, now)
}
