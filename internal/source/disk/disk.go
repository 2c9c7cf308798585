// Package disk looks at files for somebody who must not wait: an operation that the kernel
// does not answer in time, as on a mount whose server is gone, is given up, and its path is
// told later, when it answers after all. Paths and functions go in; what they return, or
// ErrNoAnswer, comes out.
//
// What was given up goes on in a goroutine, which nothing can end but the kernel. There are
// at most a few of them, and never two for one path.
package disk

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// The defaults of a Config.
const (
	Patience = 2 * time.Second
	Retry    = time.Second
)

const (
	// most bounds the operations that are unanswered at once. Those that follow a link, which
	// may lead many files to one place, are refused at half of it: files that are where they
	// seem to be go on being read.
	most = 64
	// hasty divides Patience while something is unanswered: what is asked then is likely to
	// be as silent, and those who wait behind it should not wait for each.
	hasty = 8
	// retryMost is the longest wait before a file that kept its reader waiting is read again.
	retryMost = 5 * time.Minute
	// patienceMost is the longest that is waited for a path that was slow before.
	patienceMost = time.Minute
)

// ErrNoAnswer means that a file or folder is not known to be there or not: the operating
// system did not answer in time.
var ErrNoAnswer = errors.New("does not answer")

// Config is what a Disk is made from.
type Config struct {
	Patience time.Duration // for one operation, longer for a path that was slow before; 0: Patience
	Retry    time.Duration // before a file that kept its reader waiting is read again, doubled each time; 0: Retry
	Wake     func()        // called, from any goroutine, when Answered has something to tell; nil: nothing
	// Before is called before each operation, in its goroutine; nil: nothing. It is how a
	// test makes a mount hang.
	Before func(path string)
}

// Disk does operations. Its methods may be called at any time, by any goroutine.
type Disk struct {
	cfg  Config
	stop chan struct{} // closed by Close

	mu       sync.Mutex               // guards what follows
	silent   map[string]bool          // paths whose operation was given up and has not returned
	waiting  map[string]bool          // paths that were refused because too many are silent
	slow     map[string]time.Duration // how long a path took last, if longer than patience
	answered []string                 // paths to ask again
}

// New returns a Disk with nothing under way.
func New(cfg Config) *Disk {
	if cfg.Patience == 0 {
		cfg.Patience = Patience
	}
	if cfg.Retry == 0 {
		cfg.Retry = Retry
	}
	if cfg.Wake == nil {
		cfg.Wake = func() {}
	}
	return &Disk{
		cfg: cfg, stop: make(chan struct{}),
		silent: map[string]bool{}, waiting: map[string]bool{}, slow: map[string]time.Duration{},
	}
}

// Close ends what is not in the kernel's hands. Nothing is told of afterwards.
func (d *Disk) Close() { close(d.stop) }

// Answered returns the paths that were given up, or refused because of others, and can be
// asked again, each once.
func (d *Disk) Answered() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.answered
	d.answered = nil
	slices.Sort(out)
	return slices.Compact(out)
}

// Sort says how an operation treats a link.
type Sort bool

// The sorts of operations.
const (
	Here   Sort = false // it ends where the path says
	Follow Sort = true  // it may end anywhere
)

// Ask does an operation on a path and returns its result. If it takes too long, or one on
// the same path still does, or too many do, the error is ErrNoAnswer. do must change nothing
// that outlives it: it may still run when Ask has returned.
func Ask[T any](d *Disk, path string, sort Sort, do func() (T, error)) (T, error) {
	var none T
	patience, err := d.begin(path, sort)
	if err != nil {
		return none, err
	}
	type answer struct {
		value T
		err   error
	}
	answers := make(chan answer, 1)
	call := &call{disk: d, path: path, began: time.Now()}
	go func() {
		var a answer
		if !call.persist(func() error { a.value, a.err = do(); return a.err }) {
			return
		}
		call.end(func() { answers <- a })
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case a := <-answers:
		return a.value, a.err
	case <-timer.C:
	}
	if call.giveUp() {
		return none, ErrNoAnswer
	}
	a := <-answers
	return a.value, a.err
}

// begin says how long to wait, or why not to ask.
func (d *Disk) begin(path string, sort Sort) (time.Duration, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	bound := most
	if sort == Follow {
		bound /= 2
	}
	switch n := len(d.silent); {
	case d.silent[path]:
		return 0, ErrNoAnswer
	case n >= bound:
		d.waiting[path] = true
		return 0, fmt.Errorf("is not looked at, because others do not answer (%d): %w", n, ErrNoAnswer)
	case n > 0:
		return max(d.cfg.Patience/hasty, d.slow[path]), nil
	}
	return max(d.cfg.Patience, d.slow[path]), nil
}

// call is one operation under way.
type call struct {
	disk  *Disk
	path  string
	began time.Time

	given, ended bool // up by who asked; guarded by disk.mu
}

// persist does the operation, again and again while it is a read that gave up by itself. It
// reports false if the disk was closed meanwhile.
func (c *call) persist(do func() error) bool {
	d := c.disk
	// Exits: the operation returned, or the disk is closed.
	for wait := d.cfg.Retry; ; wait = min(2*wait, retryMost) {
		if d.cfg.Before != nil {
			d.cfg.Before(c.path)
		}
		if err := do(); !errors.Is(err, os.ErrDeadlineExceeded) {
			return true
		}
		timer := time.NewTimer(wait)
		select {
		case <-d.stop:
			timer.Stop()
			return false
		case <-timer.C:
		}
	}
}

// end hands the result to who asked, or says that asking again is worth it.
func (c *call) end(hand func()) {
	d := c.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	c.ended = true
	if !c.given {
		delete(d.slow, c.path)
		hand() // does not block: the channel has room for it
		return
	}
	d.slow[c.path] = min(2*time.Since(c.began), patienceMost)
	delete(d.silent, c.path)
	d.answered = append(d.answered, c.path)
	for path := range d.waiting {
		d.answered = append(d.answered, path)
	}
	clear(d.waiting)
	d.cfg.Wake()
}

// giveUp reports whether the operation is still under way, which is then its own affair.
func (c *call) giveUp() bool {
	d := c.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if !c.ended {
		c.given = true
		d.silent[c.path] = true
	}
	return c.given
}
