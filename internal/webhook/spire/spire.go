// Package spire has the webhook's certificate from SPIRE: the SVID of the workload that this
// process is, and the authorities that clients are to trust, by the Workload API's socket. It
// follows both for as long as it runs. SPIRE may be absent, slow or wrong about us: then there
// is no certificate, and why is told; nothing else waits.
//
// Data come in by the socket, and leave when they are asked for: at each handshake, and by
// whom Changed tells.
package spire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spiffe/go-spiffe/v2/workloadapi"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/svid"
)

// ErrNone is why there is no certificate; the error that wraps it says what SPIRE lacks.
var ErrNone = errors.New("no certificate from SPIRE")

// Config is what a Source is made from.
type Config struct {
	// Socket is the Workload API's address, as unix:///path. Required.
	Socket string
	// ServerName is the DNS name by which clients call us: a certificate without it is of no
	// use. Required.
	ServerName string
	// Now is the time that certificates are held to. Nil: time.Now.
	Now func() time.Time
	Log *slog.Logger
}

// Source is the current certificate and the current roots. It is safe for use by several.
type Source struct {
	Config
	changed chan struct{} // capacity 1: roots or certificate are others

	mu    sync.Mutex // guards all below
	cert  *tls.Certificate
	roots svid.Bundle
	why   error // what is wrong now; nil: nothing
}

// New checks c and connects to nothing.
func New(c Config) (*Source, error) {
	if c.ServerName == "" {
		return nil, errors.New("no server name")
	}
	if err := workloadapi.ValidateAddress(c.Socket); err != nil {
		return nil, fmt.Errorf("workload socket %q: %w", c.Socket, err)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Source{Config: c, changed: make(chan struct{}, 1), why: errors.New("it has not answered yet")}, nil
}

// Certificate is the newest that has the server name, and implements webhook.Certificates. An
// older one is kept while it is valid; else the error, an ErrNone, says what is wrong.
func (s *Source) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.cert == nil:
		return nil, fmt.Errorf("%w: %w", ErrNone, s.why)
	case !s.Now().After(s.cert.Leaf.NotAfter):
		return s.cert, nil
	}
	err := fmt.Errorf("%w: the last one ended at %s", ErrNone, s.cert.Leaf.NotAfter.UTC().Format(time.RFC3339))
	if s.why != nil {
		err = fmt.Errorf("%w, and there is no other: %w", err, s.why)
	}
	return nil, err
}

// Roots are the authorities of the certificate's trust domain; zero before there is one.
func (s *Source) Roots() svid.Bundle {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roots
}

// Changed tells, once for any number of times, that certificate or roots are others. It is for
// one reader.
func (s *Source) Changed() <-chan struct{} { return s.changed }

// Run follows SPIRE until ctx is done, whatever SPIRE does.
func (s *Source) Run(ctx context.Context) error {
	client, err := workloadapi.New(ctx, workloadapi.WithAddr(s.Socket), workloadapi.WithBackoffStrategy(patience{}))
	if err != nil {
		return fmt.Errorf("workload socket %q: %w", s.Socket, err)
	}
	defer client.Close()
	// Exits: ctx is done. The client's watch also ends where it thinks that another try is in
	// vain; SPIRE may be another by then.
	for ctx.Err() == nil {
		_ = client.WatchX509Context(ctx, watcher{s}) // it has told the watcher
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
	}
	return ctx.Err()
}

// retry is how long after a failure the socket is tried again, whatever the failure: who waits
// is an administrator, and the socket is of this node.
const retry = 2 * time.Second

// patience implements workloadapi.BackoffStrategy and workloadapi.Backoff.
type patience struct{}

func (patience) NewBackoff() workloadapi.Backoff { return patience{} }
func (patience) Next() time.Duration             { return retry }
func (patience) Reset()                          {}

// watcher implements workloadapi.X509ContextWatcher.
type watcher struct{ *Source }

// OnX509ContextUpdate implements workloadapi.X509ContextWatcher.
func (w watcher) OnX509ContextUpdate(c *workloadapi.X509Context) {
	cert, err := choose(c, w.ServerName)
	if err != nil {
		w.fail(err)
		return
	}
	bundle, err := c.Bundles.GetX509BundleForTrustDomain(cert.domain)
	if err != nil {
		w.fail(err)
		return
	}
	roots := svid.NewBundle(bundle.X509Authorities()...)
	if roots.IsZero() {
		w.fail(fmt.Errorf("its bundle of %s is empty", cert.domain))
		return
	}
	w.mu.Lock()
	another := w.cert == nil || !w.cert.Leaf.Equal(cert.Leaf) || !w.roots.Equal(roots)
	w.cert, w.roots, w.why = &cert.Certificate, roots, nil
	w.mu.Unlock()
	if !another {
		return
	}
	w.Log.Info("webhook certificate from SPIRE", logkey.Identity, cert.Leaf.URIs[0].String(), logkey.NotAfter, cert.Leaf.NotAfter, logkey.Count, len(roots.Certificates()))
	select {
	case w.changed <- struct{}{}:
	default: // the reader has not come to the last one yet, and will see this too
	}
}

// OnX509ContextWatchError implements workloadapi.X509ContextWatcher.
func (w watcher) OnX509ContextWatchError(err error) {
	if !errors.Is(err, context.Canceled) {
		w.fail(err)
	}
}

// fail notes what is wrong, and says it if it was not wrong before.
func (w watcher) fail(err error) {
	w.mu.Lock()
	known := w.why != nil && w.why.Error() == err.Error()
	w.why = err
	w.mu.Unlock()
	if !known {
		w.Log.Warn("no new webhook certificate from SPIRE", logkey.Error, err)
	}
}
