package client_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/test/controller"
	"aether.io/aether/internal/watermark"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// envoy stands for the local xDS server and the Envoy behind it: it holds what it is
// given, and says of it what the test wants said.
type envoy struct {
	pulse   chan struct{}
	applied chan resource.Update

	mu      sync.Mutex // guards what follows
	holding *snapshot.Holding
	mark    watermark.Mark
	says    resource.Outcome
	gate    chan struct{} // if not nil, Apply waits for it to be closed
	broken  error         // if not nil, Apply's answer
	away    bool          // there is no Envoy: Apply takes in, and nothing of it is live
	now     resource.Observed
}

func newEnvoy(held ...*resource.Resource) *envoy {
	e := &envoy{pulse: make(chan struct{}, 1), applied: make(chan resource.Update, 1024), holding: snapshot.NewHolding(held)}
	e.now = resource.Observed{EnvoyConnected: true, EnvoyVersion: "1.40.0"}
	if len(held) > 0 {
		e.now.Version, e.now.Configured = e.holding.Version(), true
	}
	return e
}

func (e *envoy) Apply(ctx context.Context, u resource.Update) (resource.Outcome, error) {
	e.mu.Lock()
	gate := e.gate
	e.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return resource.Outcome{}, ctx.Err()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.broken != nil {
		return resource.Outcome{}, e.broken
	}
	if _, err := e.holding.Apply(u); err != nil {
		return resource.Outcome{}, err
	}
	if !e.away {
		e.mark, e.now.Version, e.now.Configured, e.now.Outcome = u.Mark, u.Version, true, e.says
	}
	e.applied <- u
	return e.says, nil
}

func (e *envoy) Held() resource.Held {
	e.mu.Lock()
	defer e.mu.Unlock()
	return resource.Held{
		Version: e.holding.Version(), Resources: slices.Collect(e.holding.All()), Refused: e.now.Refused, Mark: e.mark,
	}
}

func (e *envoy) Observe() <-chan struct{} { return e.pulse }

func (e *envoy) Observed() resource.Observed {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

// turn changes what Envoy does, and tells.
func (e *envoy) turn(change func(*envoy)) {
	e.mu.Lock()
	change(e)
	e.mu.Unlock()
	select {
	case e.pulse <- struct{}{}:
	default:
	}
}

// log is a log that can be read while it is written.
type log struct {
	wrote chan struct{} // pulses, with room for one
	mu    sync.Mutex
	text  bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// rig is one proxy's client against a controller that the test drives.
type rig struct {
	*controller.Controller
	client   *client.Client
	identity *identity.Source
	envoy    *envoy
	states   chan health.State
	live     chan string
	log      *log
	registry *prometheus.Registry
}

// start runs a client until the test ends.
func start(t *testing.T, c *controller.Controller, e *envoy, change ...func(*client.Config)) *rig {
	t.Helper()
	r := &rig{
		Controller: c, envoy: e, log: &log{wrote: make(chan struct{}, 1)}, registry: prometheus.NewRegistry(),
		states: make(chan health.State, 1024), live: make(chan string, 1024),
	}
	logger := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var err error
	r.identity, err = identity.New(identity.Config{
		Endpoint: c.Bootstrap.Endpoint(), TokenPath: c.TokenPath(), BundlePath: c.BundlePath(),
		TrustDomain: spiffeid.RequireTrustDomainFromString(controller.TrustDomain),
		ServerID:    spiffeid.RequireFromString(controller.ServerID), Log: logger, Registerer: r.registry,
		Poll: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := client.Config{
		Endpoint: c.Streams.Endpoint(), Identity: r.identity, Applier: e, Scope: scope.SharedPool(), NodeID: "proxy-0",
		BuildVersion: "v0", BuildRevision: "abc", Log: logger, Registerer: r.registry,
		OnState: func(s health.State) { r.states <- s }, OnLive: func(v string) { r.live <- v },
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.client, err = client.New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- r.identity.Run(ctx) }()
	go func() { ends <- r.client.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		for range 2 {
			if err := controller.Wait(t, "end of Run", ends); err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	return r
}

// state waits for a state, passing over others.
func (r *rig) state(t *testing.T, state, reason string) {
	t.Helper()
	late := time.After(controller.Patience)
	for {
		select {
		case s := <-r.states:
			if s.State == state && s.Reason == reason {
				return
			}
		case <-late:
			t.Fatalf("never %s %q, but %+v", state, reason, r.client.State())
		}
	}
}

// wait looks again whenever something is logged, which everything that changes is.
func (r *rig) wait(t *testing.T, what string, is func() bool) {
	t.Helper()
	late := time.After(controller.Patience)
	for !is() {
		select {
		case <-r.log.wrote:
		case <-late:
			t.Fatalf("no %s; state %+v, identity %v", what, r.client.State(), r.identity.Failure())
		}
	}
}

// establish opens a stream and makes a first snapshot live on it.
func (r *rig) establish(t *testing.T, rs ...*resource.Resource) *controller.Stream {
	t.Helper()
	st := r.Next(t)
	st.Snapshot(whole(1, rs...))
	if a := st.Answer(t); a.Version != version(rs...) || a.Nonce != 1 {
		t.Fatalf("got %+v", a)
	}
	r.state(t, health.Ready, "")
	<-r.envoy.applied
	return st
}

func res(t testing.TB, name, text string) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, wrapperspb.String(text))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func own(t testing.TB, name string, m proto.Message) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func many(t testing.TB, n int) []*resource.Resource {
	t.Helper()
	out := make([]*resource.Resource, n)
	for i := range out {
		out[i] = res(t, fmt.Sprintf("resource-%06d", i), "x")
	}
	return out
}

func version(rs ...*resource.Resource) string {
	var s resource.Set
	for _, r := range rs {
		s.Add(r.Name, r.Hash)
	}
	return s.Version()
}

// whole is a snapshot of everything.
func whole(nonce uint64, rs ...*resource.Resource) snapshot.Snapshot {
	return snapshot.Snapshot{Nonce: nonce, Update: resource.Update{
		Version: version(rs...), Full: true, Changed: rs, Mark: watermark.Mark{Positions: map[string]uint64{"pods": nonce}},
	}}
}

// step is a snapshot that changes some and gives a version.
func step(nonce uint64, version string, changed ...*resource.Resource) snapshot.Snapshot {
	return snapshot.Snapshot{Nonce: nonce, Update: resource.Update{Version: version, Changed: changed}}
}

// snapshotWithout takes one away.
func snapshotWithout(n resource.Name, version string) snapshot.Snapshot {
	return snapshot.Snapshot{Nonce: 1, Update: resource.Update{Version: version, Removed: []resource.Name{n}}}
}

func raw(m *discoveryv1.Snapshot) *discoveryv1.ServerMessage {
	return &discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Snapshot{Snapshot: m}}
}
