// Package ca is the authority that signs SVIDs and the controller's own server
// certificates, and the set of roots that both sides trust. The CA's material comes in
// through a Store, public keys of proved identities through Sign; certificates and roots
// go out. It does not know how identities are proved, and it never lets its key out.
//
// One issuer signs both SVIDs and server certificates. Rotation will part them: see
// Authority.serverIssuer.
package ca

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Back-off of an authority that has no CA yet.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Publisher brings the trust bundle to those who are to trust it.
type Publisher interface {
	// Publish replaces what was published before. It is called at each look at the store,
	// and is to do nothing where b is published already.
	Publish(ctx context.Context, b svid.Bundle) error
}

// Config is what an Authority needs.
type Config struct {
	Store       Store                 // required
	Publisher   Publisher             // nil: roots are only served by Roots
	TrustDomain spiffeid.TrustDomain  // required
	Lifetime    time.Duration         // of a CA that we create; default 87600h
	SVIDTTL     time.Duration         // of SVIDs and server certificates; default 24h
	Poll        time.Duration         // between looks at the store; default 2s
	OnFault     func(error)           // called by Run when Fault has changed, with what it is now; must not block
	Now         func() time.Time      // default time.Now
	Log         *slog.Logger          // default: none
	Registerer  prometheus.Registerer // default: no metrics
}

// Authority signs. All methods may be called at any time, by any goroutine.
type Authority struct {
	cfg    Config
	ready  chan struct{} // closed by Run when the first CA is in use and published
	wake   chan struct{} // capacity 1: Look was called
	issues prometheus.Counter

	mu      sync.Mutex // guards what follows
	issuer  *issuer    // the last good one; nil before the first
	roots   svid.Bundle
	fault   error                              // what is wrong with the store's content, nil if nothing
	servers map[spiffeid.ID]*serverCertificate // never shrinks; as many as listeners have IDs
	changed chan struct{}                      // closed and replaced when roots or issuer change

	// Owned by Run.
	seen Material // what the store held when issuer was made from it
}

// New returns an authority that can sign once Run has loaded or created a CA.
func New(cfg Config) (*Authority, error) {
	if cfg.Store == nil || cfg.TrustDomain.IsZero() {
		return nil, errors.New("authority needs a store and a trust domain")
	}
	if cfg.Lifetime < 0 || cfg.SVIDTTL < 0 || cfg.Poll < 0 {
		return nil, errors.New("authority needs positive durations")
	}
	if cfg.Lifetime == 0 {
		cfg.Lifetime = 87600 * time.Hour
	}
	if cfg.SVIDTTL == 0 {
		cfg.SVIDTTL = 24 * time.Hour
	}
	if cfg.Poll == 0 {
		cfg.Poll = 2 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authority{
		cfg:     cfg,
		ready:   make(chan struct{}),
		wake:    make(chan struct{}, 1),
		changed: make(chan struct{}),
		servers: map[spiffeid.ID]*serverCertificate{},
		issues: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coxswain_discovery_svids_issued_total", Help: "SVIDs that were signed.",
		}),
	}
	if err := a.register(); err != nil {
		return nil, err
	}
	return a, nil
}

// Run loads the CA, or creates it where there is none, and then follows its changes
// until ctx is done. It returns nil. A CA that is not good is reported and looked at
// again; one that was good stays in use meanwhile.
func (a *Authority) Run(ctx context.Context) error {
	retry := firstRetry
	_ = run.Loop(ctx, a.wake, func(ctx context.Context) (again time.Time) {
		err := a.refresh(ctx)
		if ctx.Err() != nil {
			return time.Time{}
		}
		a.report(err)
		wait := a.cfg.Poll
		if err == nil {
			a.setReady()
			retry = firstRetry
		} else if !a.isReady() {
			wait = retry/2 + rand.N(retry/2)
			retry = min(2*retry, lastRetry)
		}
		return time.Now().Add(wait)
	})
	return nil // its error is ctx's
}

// Look has Run look at the store, and publish, at once.
func (a *Authority) Look() {
	select {
	case a.wake <- struct{}{}:
	default: // it will
	}
}

// refresh looks at the store once, and has what is trusted published, whatever became of
// the store.
func (a *Authority) refresh(ctx context.Context) error {
	err := a.follow(ctx)
	roots := a.Roots()
	if a.cfg.Publisher == nil || roots.IsZero() {
		return err
	}
	unpublished := a.cfg.Publisher.Publish(ctx, roots)
	switch {
	case unpublished != nil && err != nil:
		return fmt.Errorf("%w; publish trust bundle: %w", err, unpublished)
	case unpublished != nil:
		return fmt.Errorf("publish trust bundle: %w", unpublished)
	}
	return err
}

// follow brings the store's content into use.
func (a *Authority) follow(ctx context.Context) error {
	m, err := a.load(ctx)
	if err != nil {
		return err
	}
	if m.Equal(a.seen) && a.current() != nil {
		return nil
	}
	is, err := parse(m, a.cfg.TrustDomain, a.cfg.Now())
	if err != nil {
		return err
	}
	a.adopt(is)
	a.seen = m
	return nil
}

// load reads the store. Only an authority that has never had a CA creates one: the
// first to create it wins, the others read it.
func (a *Authority) load(ctx context.Context) (Material, error) {
	m, err := a.cfg.Store.Load(ctx)
	if !errors.Is(err, ErrAbsent) || a.current() != nil {
		return m, err
	}
	m, err = create(a.cfg.TrustDomain, a.cfg.Lifetime, a.cfg.Now())
	if err != nil {
		return Material{}, err
	}
	err = a.cfg.Store.Create(ctx, m)
	switch {
	case errors.Is(err, ErrExists):
		return a.cfg.Store.Load(ctx)
	case err != nil:
		return Material{}, err
	}
	a.cfg.Log.Info("CA created")
	return m, nil
}

// adopt puts an issuer in use. Roots that this process has used stay trusted until they
// expire, so that a CA that is replaced while we run cuts nobody off.
func (a *Authority) adopt(is *issuer) {
	a.mu.Lock()
	a.issuer = is
	a.roots = a.roots.Valid(a.cfg.Now()).With(is.root())
	close(a.changed)
	a.changed = make(chan struct{})
	a.mu.Unlock()
	a.cfg.Log.Info("CA loaded", logkey.KeyID, fmt.Sprintf("%x", is.keyID), logkey.NotAfter, is.notAfter)
}

// report tells of a fault when it becomes another, and when it is over.
func (a *Authority) report(err error) {
	a.mu.Lock()
	old, has := a.fault, a.issuer != nil
	a.fault = err
	a.mu.Unlock()
	if err == nil && old == nil || err != nil && old != nil && old.Error() == err.Error() {
		return
	}
	if a.cfg.OnFault != nil {
		a.cfg.OnFault(err)
	}
	switch {
	case err != nil:
		if has {
			a.cfg.Log.Error("CA cannot be followed, keeping the last good one", logkey.Error, err)
		} else {
			a.cfg.Log.Error("no usable CA, trying again", logkey.Error, err)
		}
	default:
		a.cfg.Log.Info("CA is good again")
	}
}

func (a *Authority) setReady() {
	if !a.isReady() {
		close(a.ready)
	}
}

func (a *Authority) isReady() bool {
	select {
	case <-a.ready:
		return true
	default:
		return false
	}
}

// Ready is closed when the authority can sign and its root has been published. Before,
// the listeners are not to be open.
func (a *Authority) Ready() <-chan struct{} { return a.ready }

// Roots returns the set to verify peers against. It is empty before Ready.
func (a *Authority) Roots() svid.Bundle {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.roots
}

// Changed returns a channel that is closed when the roots or the issuer next change.
// Take it before reading what may change.
func (a *Authority) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// Fault returns what is wrong with the stored CA, nil if nothing. An authority with a
// fault may still sign with its last good CA.
func (a *Authority) Fault() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.fault
}

// Usable returns why nothing can be signed now, nil if it can: there is no CA yet, or it
// has expired.
func (a *Authority) Usable() error {
	_, err := usable(a.current(), a.cfg.Now())
	if fault := a.Fault(); fault != nil && (err != nil || !a.isReady()) {
		return fault
	}
	if err == nil && !a.isReady() {
		return fmt.Errorf("%w: its root is not published yet", svid.ErrUnusable)
	}
	return err
}

// Sign issues an SVID to an identity that the caller has proved. It returns
// svid.ErrUnusable while there is no CA or since it has expired, svid.ErrWeakKey for a
// key that the policy does not accept, and spiffeid.ErrTrustDomain for a foreign ID.
func (a *Authority) Sign(ctx context.Context, req svid.Request) (svid.Issued, error) {
	if err := ctx.Err(); err != nil {
		return svid.Issued{}, err
	}
	if !req.ID.MemberOf(a.cfg.TrustDomain) {
		return svid.Issued{}, fmt.Errorf("sign %s: %w", req.ID, spiffeid.ErrTrustDomain)
	}
	if err := svid.CheckKey(req.PublicKey); err != nil {
		return svid.Issued{}, fmt.Errorf("sign %s: %w", req.ID, err)
	}
	now := a.cfg.Now()
	is, err := usable(a.current(), now)
	if err != nil {
		return svid.Issued{}, fmt.Errorf("sign %s: %w", req.ID, err)
	}
	leaf, err := is.sign(req, a.cfg.SVIDTTL, now)
	if err != nil {
		return svid.Issued{}, fmt.Errorf("sign %s: %w", req.ID, err)
	}
	a.issues.Inc()
	return is.issued(leaf), nil
}

func (a *Authority) current() *issuer {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.issuer
}

func usable(is *issuer, now time.Time) (*issuer, error) {
	switch {
	case is == nil:
		return nil, fmt.Errorf("%w: none loaded", svid.ErrUnusable)
	case !now.Before(is.notAfter):
		return nil, fmt.Errorf("%w: %w", svid.ErrUnusable, ErrExpired)
	}
	return is, nil
}
