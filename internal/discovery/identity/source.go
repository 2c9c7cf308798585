// Package identity obtains a proxy's SVID from the controller's bootstrap listener and
// keeps it fresh: one state machine, owned by Source.Run. It reads two files, the pod's
// token and the mounted trust bundle, each time it needs them; it gives the current SVID,
// the TLS configuration that goes with it, and what it trusts. Private keys are made
// here and never leave memory. It opens no stream: that is internal/discovery/client.
package identity

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc/stats"

	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/backoff"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/svid"
)

// Config says where the identity comes from. Endpoint, TokenPath, BundlePath,
// TrustDomain and ServerID are required.
type Config struct {
	Endpoint    string // the bootstrap listener, https://host:port
	TokenPath   string // the pod's token for the controller, read for each attempt
	BundlePath  string // PEM roots, read for each handshake and watched
	TrustDomain spiffeid.TrustDomain
	ServerID    spiffeid.ID // the only server that is accepted, whatever its address or DNS name
	WireVersion uint32      // ours, told to the controller; default discovery.WireVersion

	Timeout time.Duration // of one attempt; default 15 s
	Poll    time.Duration // how often files and the clock are looked at; default 10 s

	Calls      stats.Handler         // is told of calls to the controller; default: none
	OnSVID     func(*SVID)           // called by Run for each new SVID; must not block
	Now        func() time.Time      // judges certificates; default time.Now
	Log        *slog.Logger          // default: none
	Registerer prometheus.Registerer // default: none
}

// Source is the current identity. Its methods are safe for concurrent use.
type Source struct {
	cfg      Config
	endpoint dial.Endpoint
	trust    *trust
	renew    chan struct{} // one request is enough: capacity 1; Run receives

	mu      sync.Mutex // guards what follows
	current *SVID
	issued  uint64 // how many SVIDs so far
	failure error  // of the newest attempt
	changed chan struct{}
}

// New checks the configuration. Run does the work.
func New(cfg Config) (*Source, error) {
	endpoint, err := dial.ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.TokenPath == "" || cfg.BundlePath == "":
		return nil, errors.New("identity: the paths of token and trust bundle are required")
	case cfg.TrustDomain.IsZero() || !cfg.ServerID.MemberOf(cfg.TrustDomain):
		return nil, errors.New("identity: the server's ID must be of our trust domain")
	}
	if cfg.WireVersion == 0 {
		cfg.WireVersion = discovery.WireVersion
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 15 * time.Second
	}
	if cfg.Poll <= 0 {
		cfg.Poll = 10 * time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Source{cfg: cfg, endpoint: endpoint, renew: make(chan struct{}, 1), changed: make(chan struct{})}
	s.trust = &trust{path: cfg.BundlePath, domain: cfg.TrustDomain, changed: s.announce}
	if cfg.Registerer != nil {
		err = cfg.Registerer.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "coxswain_discovery_client_svid_remaining_seconds",
			Help: "Seconds until the SVID in use expires, computed at scrape; negative once it has, NaN before the first.",
		}, s.remaining))
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run obtains and renews the SVID until ctx is done. It returns nil: no failure of
// the controller, of the network or of a file ends it.
func (s *Source) Run(ctx context.Context) error {
	var try retry
	poll := time.NewTicker(s.cfg.Poll)
	defer poll.Stop()
	timer := time.NewTimer(0) // fires when the next attempt is due; the first is at once
	defer timer.Stop()
	var due time.Time // the same by the clock: timers sleep while a machine does
	waiting := false  // an SVID is in hand and the attempt that is due is its renewal

	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
			s.trust.reload()
			if !waiting || s.cfg.Now().Before(due) {
				continue
			}
		case <-s.renew:
			if !waiting { // an attempt is due soon anyway, and the back-off stands
				continue
			}
			waiting = false
			timer.Reset(try.onDemand(time.Now()))
			continue
		case <-timer.C:
		}
		got, err := s.issue(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.settle(got, err)
		var wait time.Duration
		if waiting = err == nil; waiting {
			try.succeeded(time.Now())
			wait = renewIn(s.cfg.Now(), got.NotAfter())
		} else {
			wait = try.failed(err)
		}
		due = s.cfg.Now().Add(wait)
		timer.Reset(wait)
	}
}

// settle makes an attempt's result the current state and says so.
func (s *Source) settle(got *SVID, err error) {
	s.mu.Lock()
	before := s.failure
	s.failure = err
	if err == nil {
		s.issued++
		got.sequence = s.issued
		s.current = got
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		s.cfg.Log.Info("SVID issued", logkey.Identity, got.ID().String(), logkey.Serial, got.Serial(),
			logkey.KeyID, got.IssuerKeyID(), logkey.NotAfter, got.NotAfter())
		if s.cfg.OnSVID != nil {
			s.cfg.OnSVID(got)
		}
	case before == nil || dial.Kind(before) != dial.Kind(err):
		s.cfg.Log.Warn("no SVID obtained", logkey.Endpoint, s.endpoint.String(), logkey.Error, err)
	default: // said already
		s.cfg.Log.Debug("no SVID obtained", logkey.Endpoint, s.endpoint.String(), logkey.Error, err)
	}
	s.announce()
}

// announce wakes everyone who waits for Changed.
func (s *Source) announce() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed returns a channel that is closed when the SVID, the newest failure or what is
// trusted has changed after the call. Take it first, then read.
func (s *Source) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// Current returns the newest SVID, which may have expired, or nil before the first.
func (s *Source) Current() *SVID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// Failure returns why the newest attempt gave no SVID, nil if it did.
func (s *Source) Failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

// Renew asks for a new SVID now. It returns at once; requests in quick succession are
// spaced, and while attempts fail the back-off stands.
func (s *Source) Renew() {
	select {
	case s.renew <- struct{}{}:
	default: // one is waiting already
	}
}

// TrustToo adds the roots that the controller has sent over an authenticated stream to
// the mounted ones; they replace those of the call before.
func (s *Source) TrustToo(pushed svid.Bundle) {
	s.trust.push(pushed)
}

// Roots returns the fingerprints of the mounted and of the pushed roots: lower-case
// hexadecimal SHA-256, sorted.
func (s *Source) Roots() (mounted, pushed []string) {
	m, p := s.trust.bundles()
	return m.Fingerprints(), p.Fingerprints()
}

// ClientTLS is mutual TLS that presents exactly own and accepts only the controller.
func (s *Source) ClientTLS(own *SVID) *tls.Config {
	c := tlsconfig.MTLSClientConfig(own.svid, s.trust, tlsconfig.AuthorizeID(s.cfg.ServerID))
	c.MinVersion = tls.VersionTLS13
	return c
}

func (s *Source) remaining() float64 {
	if c := s.Current(); c != nil {
		return c.NotAfter().Sub(s.cfg.Now()).Seconds()
	}
	return math.NaN()
}

// renewIn is the time until renewal: half of what is left of the lifetime, ± 10 %, and
// never less than a second, however short the lives that a dying CA gives.
func renewIn(now, notAfter time.Time) time.Duration {
	return max(backoff.Spread(notAfter.Sub(now)/2, 0.1), time.Second)
}
