// Package election has one replica of several lead: what only one may do is done by the
// holder of a Lease, and by nobody while it is not known who that is. Losing the Lease stops
// what the leader does and nothing else; the replica stands again at once.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"aether.io/aether/internal/logkey"
)

// The defaults of a Config. A leader that cannot renew stops leading after Renew, and others
// take over after Lease: the time between is for what it does to stop.
const (
	DefaultLease = 15 * time.Second
	DefaultRenew = 10 * time.Second
	DefaultRetry = 2 * time.Second
)

// releaseTimeout bounds giving the Lease back.
const releaseTimeout = 3 * time.Second

// Config is what an Election is made from. Lock and Lead are required.
type Config struct {
	Lock resourcelock.Interface // what to hold; see Lease
	// Lead does what the leader does until ctx is done, and returns nil or ctx's error then.
	// It is called anew for each term. Returning earlier ends Run.
	Lead     func(ctx context.Context) error
	OnChange func(leading bool) // called as a term begins and ends; must not block
	// OnReach is called when the Lease cannot be read or written, or not for the same reason as
	// before, with why, and with nil when it can again; it must not block. nil: nobody is told.
	OnReach func(err error)
	// For how long a Lease is held without being renewed, how long renewing is tried, and
	// how often. Zero: the defaults.
	Lease, Renew, Retry time.Duration
	Log                 *slog.Logger
	Registerer          prometheus.Registerer // nil: no metrics
}

// Election is one replica's part in the election.
type Election struct {
	c       Config
	lock    *lock
	leading atomic.Bool
}

// New checks c. It stands for election once it is run.
func New(c Config) (*Election, error) {
	if c.Lock == nil || c.Lead == nil {
		return nil, errors.New("an election needs a lock and something to lead")
	}
	if c.Lease == 0 && c.Renew == 0 && c.Retry == 0 {
		c.Lease, c.Renew, c.Retry = DefaultLease, DefaultRenew, DefaultRetry
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	e := &Election{c: c, lock: &lock{Interface: c.Lock, log: c.Log, onReach: c.OnReach}}
	if _, err := e.elector(func(context.Context) {}); err != nil { // it checks the durations
		return nil, fmt.Errorf("election: %w", err)
	}
	if c.Registerer != nil {
		err := c.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "aether_leader", Help: "1 while this replica leads, else 0.",
		}, func() float64 {
			if e.leading.Load() {
				return 1
			}
			return 0
		}))
		if err != nil {
			return nil, err
		}
	}
	return e, nil
}

// Leading reports whether this replica leads.
func (e *Election) Leading() bool { return e.leading.Load() }

// Run stands for election until ctx is done. Then, once what it leads has stopped, it gives
// the Lease back, so that another replica need not wait for its end.
func (e *Election) Run(ctx context.Context) error {
	// Exits: ctx is done; what is led ended by itself.
	for {
		if err := e.term(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			e.release(ctx)
			return ctx.Err()
		}
	}
}

// term waits to be elected and leads until ctx is done or the Lease is lost. It returns an
// error if what is led ends though it should not.
func (e *Election) term(ctx context.Context) error {
	// The Lease is held on to until what is led has stopped, ctx or not.
	holding, letGo := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	defer letGo()
	left := make(chan error, 1)
	var decided atomic.Bool // whether there is a term: by who comes first
	elector, err := e.elector(func(elected context.Context) {
		if !decided.CompareAndSwap(false, true) {
			return
		}
		led, stop := context.WithCancel(elected) // ends when the Lease is lost
		defer stop()
		defer context.AfterFunc(ctx, stop)()
		left <- e.lead(led)
	})
	if err != nil {
		return fmt.Errorf("election: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(holding)
	}()
	defer func() {
		letGo()
		<-ended
	}()
	// Exits: ctx is done and there is no term; the term is over.
	select {
	case <-ctx.Done():
		if decided.CompareAndSwap(false, true) {
			return nil
		}
		return <-left
	case err := <-left:
		return err
	}
}

func (e *Election) lead(ctx context.Context) error {
	e.tell(true)
	defer e.tell(false)
	err := e.c.Lead(ctx)
	switch {
	case ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)):
		return nil
	case err == nil:
		return errors.New("what the leader does ended by itself")
	}
	return err
}

func (e *Election) tell(leading bool) {
	e.leading.Store(leading)
	if leading {
		e.c.Log.Info("this replica leads", logkey.Identity, e.c.Lock.Identity())
	} else {
		e.c.Log.Info("this replica leads no more", logkey.Identity, e.c.Lock.Identity())
	}
	if e.c.OnChange != nil {
		e.c.OnChange(leading)
	}
}

// elector is client-go's. It does not release the Lease by itself: it would before what is
// led has stopped.
func (e *Election) elector(started func(context.Context)) (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: e.lock, LeaseDuration: e.c.Lease, RenewDeadline: e.c.Renew, RetryPeriod: e.c.Retry, Name: "aether",
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
	})
}

// release gives the Lease back if it is ours.
func (e *Election) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	record, _, err := e.c.Lock.Get(ctx)
	if err != nil || record.HolderIdentity != e.c.Lock.Identity() {
		return // it ends by itself, or is another's
	}
	now := metav1.Now()
	err = e.c.Lock.Update(ctx, resourcelock.LeaderElectionRecord{
		LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, RenewTime: now, AcquireTime: now,
	})
	if err != nil {
		e.c.Log.Warn("lease not given back; others wait for its end", logkey.Error, err)
	}
}
