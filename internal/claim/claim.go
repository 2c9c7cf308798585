// Package claim keeps releases of Aether in one cluster apart: each says in a Lease what it
// takes for its own, and of two that would take the same, one waits and can say for whom. It
// decides whether this release may act, and does nothing else: what acting is, others know.
//
// Leases of all releases come in by Store and this release's goes out by it; Lacks and While are
// what it gives. The API is the only clock that two releases share, and it is not compared with:
// that a Lease has ended is seen by its not being renewed.
package claim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"aether.io/aether/internal/logkey"
)

const (
	// DefaultDuration is for how long a Lease counts that is not renewed.
	DefaultDuration = time.Minute
	// DefaultEvery is how often Leases are looked at. That of the release is renewed as often.
	DefaultEvery = 10 * time.Second
	// maxDuration bounds what another's Lease says of how long it counts.
	maxDuration = 5 * time.Minute
	// stepTimeout bounds all requests of one look.
	stepTimeout = 15 * time.Second
	// maxSteps bounds how often is listed in one look: replicas of a release write one Lease.
	maxSteps = 5
)

// Store is where Leases are. Its calls end with their context.
type Store interface {
	// List has take called with the Leases of every release, in all namespaces, as they are now, a
	// few at a time. It ends with an error of take's, and take keeps nothing of the slice.
	List(ctx context.Context, take func([]coordinationv1.Lease) error) error
	Create(ctx context.Context, l *coordinationv1.Lease) error
	// Update and Delete fail with a conflict if the Lease is not what it was when it was listed.
	Update(ctx context.Context, l *coordinationv1.Lease) error
	Delete(ctx context.Context, l *coordinationv1.Lease) error
}

// Config is what a Claim is made from.
type Config struct {
	Store     Store   // required
	Namespace string  // required: the release's
	Release   string  // required: its name
	Watches   Watches // what it takes for its own
	// Able reports whether the release in a namespace has a right. Nil: all have all.
	Able func(ctx context.Context, namespace string, right Right) (bool, error)
	// OnLoss is called when this release has to wait, or for another reason than before, with why,
	// and with nil when it need not; it must not block. Nil: nobody is told.
	OnLoss func(lack error)
	// OnReach likewise when Leases cannot be read or written, and when they can again.
	OnReach func(err error)

	Duration, Every time.Duration // zero: the defaults
	Log             *slog.Logger
	Registerer      prometheus.Registerer // nil: no metrics
}

// Claim is one replica's view of what its release may do.
type Claim struct {
	c    Config
	seen map[id]sight        // of Run's goroutine: when each Lease was last seen to be renewed
	able map[question]answer // of Run's goroutine: what is known of others' rights
	// fresh, of Run's goroutine, is that the claim was seen not to be held, and this process has
	// not acted since.
	fresh bool

	mu      sync.Mutex // guards what follows
	held    bool
	lack    error
	changed chan struct{} // closed, and another one made, when held changes
	unread  string        // why Leases cannot be used; empty: they can
}

// New checks c. Nothing is claimed before Run.
func New(c Config) (*Claim, error) {
	if c.Store == nil || c.Namespace == "" || c.Release == "" {
		return nil, errors.New("a claim needs a store, the release's namespace and its name")
	}
	if c.Duration == 0 && c.Every == 0 {
		c.Duration, c.Every = DefaultDuration, DefaultEvery
	}
	if c.Every <= 0 || c.Duration < 3*c.Every || c.Duration > maxDuration {
		return nil, fmt.Errorf("a claim that is renewed every %s for %s: that is less than three times, or more than %s", c.Every, c.Duration, maxDuration)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	one := &Claim{
		c: c, seen: map[id]sight{}, able: map[question]answer{}, changed: make(chan struct{}),
		lack: errors.New("it is not known yet whether another release of Aether has what this one is to serve"),
	}
	if c.Registerer != nil {
		err := c.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "aether_release_held", Help: "1 while no other release of Aether has what this one is to serve, else 0.",
		}, func() float64 {
			if one.Lacks() == nil {
				return 1
			}
			return 0
		}))
		if err != nil {
			return nil, err
		}
	}
	return one, nil
}

// Lacks is why this release may not act; nil: it may. It does not block.
func (c *Claim) Lacks() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lack
}

// Run claims, and keeps and looks at what is claimed, until ctx is done. While Leases can't be
// read or written this release stays what it was.
func (c *Claim) Run(ctx context.Context) error {
	tick := time.NewTicker(c.c.Every)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		err := c.look(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c.note(err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// While has f run whenever this release may act, until ctx is done; f's context is done when it
// may no more. It returns early if f ends by itself, with f's error.
func (c *Claim) While(ctx context.Context, f func(context.Context) error) error {
	// Exits: ctx is done; f ended by itself.
	for {
		c.mu.Lock()
		held, changed := c.held, c.changed
		c.mu.Unlock()
		if held {
			holding, stop := context.WithCancel(ctx)
			go func() { // ends with holding
				select {
				case <-changed:
					stop()
				case <-holding.Done():
				}
			}()
			err := f(holding)
			lost := holding.Err() != nil
			stop()
			if ctx.Err() != nil || !lost {
				return err
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				return err
			}
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// look renews what is claimed and works out whether it is held.
func (c *Claim) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	// What was written is there before it is listed, so of two who claim the same at a time one
	// sees the other at least. Exits: nothing is left to write, which is so the third time if
	// nobody else writes: made, marked, and looked at.
	for range maxSteps {
		all, err := c.list(ctx)
		if err != nil && all.own != nil { // it is still kept, as what it was
			err = errors.Join(err, c.renew(ctx, all.own))
		}
		if err != nil {
			return err
		}
		again, err := c.step(ctx, all)
		if err != nil || !again {
			return err
		}
	}
	return fmt.Errorf("lease %s/%s is changed by others all the time, or has no label %s", c.c.Namespace, c.c.Watches.name(), Label)
}

// step writes what is to be written by what was listed, or else says whether the claim is held.
// again says that it is to be listed once more: something was written, by this replica or another.
func (c *Claim) step(ctx context.Context, all listed) (again bool, err error) {
	if all.own == nil || !all.own.entry.Holds {
		c.fresh = true
	}
	if all.own == nil {
		if err := c.c.Store.Create(ctx, c.lease()); err != nil && !apierrors.IsAlreadyExists(err) {
			return false, fmt.Errorf("make Lease of this release: %w", err)
		}
		return true, nil
	}
	entries := all.entries
	if all.own.entry.Holds && !c.fresh {
		entries = c.proven(entries)
	}
	rivals := rivals(entries, c.c.Namespace, c.c.Watches)
	if acting := holders(entries, c.c.Namespace, c.c.Watches); c.fresh && all.own.entry.Holds && len(rivals) == 0 && len(acting) > 0 {
		// Both were marked by what was listed before: of two that begin within a second each may have
		// missed the other. To mark, then to list, and then not to act beside one that is marked, leaves
		// one of them at most. This one is the older: it stays marked, so the other gives way when it looks.
		c.set(false, &OverlapError{Rivals: acting})
		return false, c.renew(ctx, all.own)
	}
	if len(rivals) > 0 {
		c.set(false, &OverlapError{Rivals: rivals}) // before others may take it to be so
	}
	if holds := len(rivals) == 0; holds != all.own.entry.Holds {
		err := c.mark(ctx, all.own, holds)
		if apierrors.IsConflict(err) {
			return true, nil
		}
		return holds, err // who waits need not look whether it does
	}
	if len(rivals) == 0 {
		c.fresh = false
		c.set(true, nil)
	}
	if err := c.renew(ctx, all.own); err != nil {
		return false, err
	}
	return false, c.tidy(ctx, all.ended)
}

// proven is entries without those of other releases that were not seen to be renewed. They take
// nothing from this one while it acts: a process that begins beside a Lease that ended
// long ago would wait for that, where those before it knew.
func (c *Claim) proven(all []entry) (out []entry) {
	for _, e := range all {
		if e.Renewed || e.Namespace == c.c.Namespace {
			out = append(out, e)
		}
	}
	return out
}

func (c *Claim) set(held bool, lack error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if held == c.held && text(lack) == text(c.lack) {
		return
	}
	if held != c.held {
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.held, c.lack = held, lack
	if held {
		c.c.Log.Info("no other release has what this one is to serve")
	} else {
		c.c.Log.Warn("another release has what this one is to serve; this one waits", logkey.Reason, lack)
	}
	if c.c.OnLoss != nil {
		c.c.OnLoss(lack)
	}
}

// note tells once what is wrong with the Leases.
func (c *Claim) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if text(err) == c.unread {
		return
	}
	c.unread = text(err)
	if err != nil {
		c.c.Log.Warn("Leases of releases cannot be used; will try again, and stay as it is", logkey.Error, err)
	} else {
		c.c.Log.Info("Leases of releases can be used")
	}
	if c.c.OnReach != nil {
		c.c.OnReach(err)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
