// Package client holds a proxy's stream to the controller: it subscribes to one scope,
// verifies what it is sent, hands it to the local xDS server, and answers with what
// Envoy said. One goroutine, in Run, owns everything that is decided; sessions (a
// connection each) and at most one application of a snapshot work beside it and report
// to it. It obtains no identity (internal/discovery/identity) and speaks no xDS.
package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// Applier is the local xDS server.
type Applier interface {
	// Apply returns when Envoy has answered for all that is held with u, with what it
	// said. u is relative to what was applied before; one that changes nothing is answered
	// like any other. It is called once at a time. ctx ends only when the client stops;
	// any error means that u may not be held.
	Apply(ctx context.Context, u resource.Update) (resource.Outcome, error)
	// Held is the set as the controller sent it, received or restored from last-good.
	Held() resource.Held
	// Observe is one channel for the Applier's life, with room for one pulse: Observed
	// may have changed.
	Observe() <-chan struct{}
	// Observed is what Envoy really runs.
	Observed() resource.Observed
}

// Watch is another part of the proxy, whose checks are told with the client's own.
type Watch interface {
	Checks() []fleet.Check
	// Observe is one channel for the Watch's life, with room for one pulse: Checks may have changed.
	Observe() <-chan struct{}
}

// Config says where to connect, as whom, and to what. Endpoint, Identity, Applier, Scope
// and NodeID are required.
type Config struct {
	Endpoint string           // the stream listener, https://host:port
	Identity *identity.Source // run by the caller
	Applier  Applier
	Scope    scope.Scope
	NodeID   string // the pod's name, as the token proves it

	BuildVersion  string // for the controller's lists
	BuildRevision string
	WireVersion   uint32 // default discovery.WireVersion

	FirstWord time.Duration // from connecting to the first message; default 30 s
	SkewRenew time.Duration // between renewals while the wire version differs; default 10 min
	Healthy   time.Duration // of streaming that makes earlier failures forgotten; default 60 s

	Watch Watch // nil: there is none

	Calls      stats.Handler        // is told of streams to the controller; default: none
	OnState    func(health.State)   // called by Run for each new state; must not block
	OnLive     func(version string) // called by Run when Envoy has answered for a version; must not block
	Now        func() time.Time     // judges certificates and dates states; default time.Now
	Log        *slog.Logger         // default: none
	Registerer prometheus.Registerer
}

// Client is the stream to the controller. State and ReadyHandler may be used at any time.
type Client struct {
	cfg      Config
	endpoint dial.Endpoint
	metrics  *metrics

	mu    sync.Mutex // guards state
	state health.State
}

// New checks the configuration. Run does the work.
func New(cfg Config) (*Client, error) {
	endpoint, err := dial.ParseEndpoint(cfg.Endpoint)
	if err != nil {
		return nil, err
	}
	switch {
	case cfg.Identity == nil || cfg.Applier == nil:
		return nil, errors.New("discovery client: identity and applier are required")
	case cfg.Scope.IsZero():
		return nil, scope.ErrInvalid
	case cfg.NodeID == "":
		return nil, errors.New("discovery client: a node id is required")
	}
	if cfg.WireVersion == 0 {
		cfg.WireVersion = discovery.WireVersion
	}
	orDefault(&cfg.FirstWord, 30*time.Second)
	orDefault(&cfg.SkewRenew, 10*time.Minute)
	orDefault(&cfg.Healthy, time.Minute)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{cfg: cfg, endpoint: endpoint, metrics: newMetrics(cfg.Now)}
	c.state = health.State{State: health.NotReady, Reason: health.NoIdentity, Since: cfg.Now()}
	c.metrics.state(health.NotReady)
	if cfg.Registerer != nil {
		if err := c.metrics.register(cfg.Registerer); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Run keeps a stream until ctx is done and returns nil then. No failure of the
// controller or of the network ends it.
func (c *Client) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	v := newSupervisor(c)
	defer v.running.Wait()
	defer cancel()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var watched <-chan struct{} // nil: never receives
	if c.cfg.Watch != nil {
		watched = c.cfg.Watch.Observe()
	}

	// Exits: ctx is done.
	for {
		identityChanged := c.cfg.Identity.Changed() // before step reads it
		v.step(ctx)
		timer.Reset(v.sleep())
		select {
		case <-ctx.Done():
			return nil
		case e := <-v.events:
			v.handle(e)
		case r := <-v.results:
			v.settle(r)
		case <-c.cfg.Applier.Observe():
			v.observe()
		case <-watched: // step publishes it
		case <-identityChanged:
			v.touched()
		case <-timer.C:
		}
	}
}

// State is what /readyz says.
func (c *Client) State() health.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

// ReadyHandler answers /readyz.
func (c *Client) ReadyHandler() http.Handler { return health.Handler(c.State) }

func (c *Client) setState(s health.State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state = s
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}
