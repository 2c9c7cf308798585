// Package webhook is the admission of MeshConfigs: an API server asks it about each that is
// made or changed, and it refuses what is wrong with the path of every field, and warns of
// what has no effect. Reviews come in over TLS at Path, verdicts go out. It reads and stores
// no object itself: what is in effect is asked of its Config.
//
// The API server calls it by a ValidatingWebhookConfiguration, which has whom to trust. Where
// the certificate comes from is a Certificates: Files for one that is made outside, the
// discovery CA (internal/ca.Named) for one that is made in the process, the SVID of a SPIRE
// agent. For the last two a Bundle keeps the configuration's caBundle right.
//
// It fails open (failurePolicy Ignore): a MeshConfig can be written while no replica runs, and
// then its definition refuses the worst, and the reader of it the rest.
package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/connlimit"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/meshconfig"
)

// The bounds of the listener. An API server calls over HTTP/1.1, one connection for each write
// that is under way, of which it allows 200 by default.
const (
	maxConnections = 1024
	maxOfAddress   = 256
	maxHeader      = 16 << 10
	// deadline is for a request to come in and be answered. The configuration's timeoutSeconds
	// is not longer.
	deadline = 5 * time.Second
	// idleTimeout is longer than an API server keeps a connection that it does not use, 90 s: it
	// is not to find closed what it sends a review over.
	idleTimeout = 2 * time.Minute
	// linger is for how long reviews are answered after the end is near: API servers learn in
	// that time where else to ask.
	linger = 3 * time.Second
)

// Certificates is where the certificate comes from that the webhook serves.
type Certificates interface {
	// Certificate is the one to serve in a handshake now, with its Leaf, or why there is none.
	// It is asked in each handshake, by any goroutine, and must not block.
	Certificate() (*tls.Certificate, error)
}

// Config is what a Server is made from.
type Config struct {
	Address      string       // required: host:port to bind
	Certificates Certificates // required
	// Trusts reports whether API servers verify a certificate by now; nil: those that there
	// are. While they do not, the one before it is served as long as it is valid.
	Trusts           func(*tls.Certificate) bool
	System           meshconfig.System
	ReleaseNamespace string // required: whose MeshConfig every other inherits
	// Release is the MeshConfig of that namespace as it is in effect, nil if there is none;
	// nil: there is never one.
	Release    func() *configv1.MeshConfig
	Wrap       func(http.Handler) http.Handler // what requests pass through before they are answered; nil: nothing
	Log        *slog.Logger                    // nil: none
	Registerer prometheus.Registerer           // nil: no metrics
}

// Server answers reviews.
type Server struct {
	c       Config
	log     *slog.Logger
	judge   judge
	metrics metrics
	chooser chooser
	open    atomic.Bool
	ending  atomic.Bool
	linger  time.Duration
}

// New checks c. It binds nothing.
func New(c Config) (*Server, error) {
	if c.Address == "" || c.Certificates == nil || c.ReleaseNamespace == "" {
		return nil, errors.New("a webhook needs an address, certificates and the release namespace")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Release == nil {
		c.Release = func() *configv1.MeshConfig { return nil }
	}
	s := &Server{
		c: c, log: c.Log, linger: linger,
		judge:   judge{system: c.System, namespace: c.ReleaseNamespace, release: c.Release},
		chooser: chooser{from: c.Certificates, trusts: c.Trusts, now: time.Now, log: c.Log},
	}
	var err error
	s.metrics, err = newMetrics(c.Registerer, s.notAfter)
	return s, err
}

// Run answers until ctx is done, and some seconds longer. The listener opens at once, certificate or not: a handshake
// without one fails, and the API server goes on as its failurePolicy says.
func (s *Server) Run(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.c.Address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", s.c.Address, err)
	}
	return s.serve(ctx, l)
}

func (s *Server) serve(ctx context.Context, l net.Listener) error {
	h := &handler{Server: s, large: make(chan struct{}, maxLarge), judged: make(chan struct{}, maxJudged)}
	var answers http.Handler = h
	if s.c.Wrap != nil {
		answers = s.c.Wrap(h)
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	srv := &http.Server{
		Handler: answers, Protocols: protocols, MaxHeaderBytes: maxHeader,
		ReadHeaderTimeout: deadline, ReadTimeout: deadline, WriteTimeout: 2 * deadline, IdleTimeout: idleTimeout,
		TLSConfig: &tls.Config{
			MinVersion:             tls.VersionTLS13,
			GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.chooser.choose() },
			SessionTicketsDisabled: true, // a resumed session would outlive its certificate
		},
		BaseContext: func(net.Listener) context.Context { return context.WithoutCancel(ctx) }, // Shutdown waits for them
		ErrorLog:    slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),                      // peers are not to fill the log
	}
	served := make(chan error, 1)
	go func() { served <- srv.ServeTLS(connlimit.New(l, maxConnections, maxOfAddress), "", "") }()
	s.open.Store(true)
	defer s.open.Store(false)
	s.log.Debug("listening", logkey.Addr, l.Addr().String())
	// Exits: serving ended, ctx is done.
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	s.ending.Store(true)
	timer := time.NewTimer(s.linger)
	defer timer.Stop()
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-timer.C:
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), deadline)
	defer cancel()
	if err := srv.Shutdown(ending); err != nil {
		_ = srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return ctx.Err()
}

// Lacks says why the webhook cannot be called, nil if it can: its listener is not open. That
// there is no certificate is not among it, as replicas that are not ready serve no proxies
// either: Usable says that.
func (s *Server) Lacks() error {
	if s.open.Load() {
		return nil
	}
	return errors.New("it is not open yet")
}

// Usable says why no handshake succeeds now, nil if one does.
func (s *Server) Usable() error {
	_, err := s.chooser.choose()
	return err
}

// notAfter is when the certificate that is served now expires, in seconds since 1970; 0: none is.
func (s *Server) notAfter() float64 {
	cert, err := s.chooser.choose()
	if err != nil {
		return 0
	}
	return float64(cert.Leaf.NotAfter.Unix())
}
