package xds

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"
	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/kind"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second // of a test, for what happens at once

// serve runs a server until the test ends or stop is called.
func serve(t *testing.T, cfg Config) (s *Server, stop func()) {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return s, stop
}

// fakeEnvoy asks for clusters, listeners and scopes, and answers all it is sent. It
// refuses, by itself, resources of which refuse says so.
type fakeEnvoy struct {
	mu      sync.Mutex
	got     []string // kind and names of each response
	conn    *grpc.ClientConn
	ended   chan error // capacity 1: how the stream ended
	refuse  func(name string) bool
	silence bool // it answers nothing
}

func dialEnvoy(t *testing.T, socket string, edit ...func(*fakeEnvoy)) *fakeEnvoy {
	t.Helper()
	e := &fakeEnvoy{ended: make(chan error, 1), refuse: func(string) bool { return false }}
	for _, f := range edit {
		f(e)
	}
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	e.conn = conn
	t.Cleanup(e.hangUp)
	stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []kind.Kind{kind.Clusters, kind.Listeners, kind.Scopes} {
		if err := stream.Send(&discoveryv3.DeltaDiscoveryRequest{TypeUrl: k.TypeURL()}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { e.ended <- e.answer(stream) }()
	return e
}

func (e *fakeEnvoy) hangUp() { _ = e.conn.Close() }

// answer ends when the stream does.
func (e *fakeEnvoy) answer(stream discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesClient) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return err
		}
		k, _ := kind.Of(r.GetTypeUrl())
		var names, bad []string
		for _, x := range r.GetResources() {
			names = append(names, x.GetName())
			if e.refuse(x.GetName()) {
				bad = append(bad, x.GetName()+": no")
			}
		}
		for _, n := range r.GetRemovedResources() {
			names = append(names, "-"+n)
		}
		e.mu.Lock()
		e.got = append(e.got, k.String()+" "+strings.Join(names, ","))
		e.mu.Unlock()
		if e.silence {
			continue
		}
		req := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: r.GetTypeUrl(), ResponseNonce: r.GetNonce()}
		if len(bad) > 0 {
			req.ErrorDetail = &statuspb.Status{Message: fmt.Sprintf("Error adding/updating %s(s) %s", k, strings.Join(bad, ", "))}
		}
		if err := stream.Send(req); err != nil {
			return err
		}
	}
}

// take returns what was received since the last take.
func (e *fakeEnvoy) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	got := e.got
	e.got = nil
	return got
}

func apply(t *testing.T, s *Server, u resource.Update) resource.Outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	o, err := s.Apply(ctx, u)
	if err != nil {
		t.Fatalf("%v; observed %+v", err, s.Observed())
	}
	return o
}

// until waits for what the server observes.
func until(t *testing.T, s *Server, what string, ok func(resource.Observed) bool) {
	t.Helper()
	deadline := time.After(patience)
	for !ok(s.Observed()) {
		select {
		case <-s.Observe():
		case <-deadline:
			t.Fatalf("not seen: %s; observed %+v", what, s.Observed())
		}
	}
}

func config(t *testing.T) Config {
	return Config{Socket: filepath.Join(t.TempDir(), "xds.sock")}
}

func TestOneNewScopeIsOneResponse(t *testing.T) {
	cfg := config(t)
	s, _ := serve(t, cfg)
	w := newWorld(t)
	w.service(0, 1)
	e := dialEnvoy(t, cfg.Socket)
	apply(t, s, w.update(true))
	if want := []string{"cluster ns/svc0/80", "scope h0.test", "listener "}; !sameSet(e.take(), want) {
		t.Errorf("first came other than %q", want)
	}
	w.scope("more.test", "ns/svc0/80")
	w.trustBundle()
	u := w.update(false)
	if o := apply(t, s, u); len(o.Pending)+len(o.Refused) > 0 {
		t.Errorf("outcome %+v", o)
	}
	if got, want := e.take(), []string{"scope more.test"}; !slices.Equal(got, want) {
		t.Errorf("sent %q, want %q", got, want)
	}
	held := s.Held()
	if held.Version != u.Version || len(held.Resources) != 5 || held.Mark.Positions["Service"] != 2 {
		t.Errorf("held %+v", held)
	}
	if o := s.Observed(); o.Version != u.Version || !o.Configured || !o.EnvoyConnected {
		t.Errorf("observed %+v", o)
	}
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

func TestRefusedIsNamedAndTheRestIsLive(t *testing.T) {
	cfg := config(t)
	s, _ := serve(t, cfg)
	w := newWorld(t)
	w.cluster("good")
	bad := w.cluster("bad")
	dialEnvoy(t, cfg.Socket, func(e *fakeEnvoy) { e.refuse = func(n string) bool { return n == "bad" } })
	o := apply(t, s, w.update(true))
	if len(o.Refused) != 1 || o.Refused[0].Name != bad || o.Refused[0].Detail != "no" || o.Refused[0].Hash != w.res[bad].Hash {
		t.Errorf("outcome %+v", o)
	}
	if held := s.Held(); len(held.Resources) != 2 || !slices.Equal(held.Refused, o.Refused) {
		t.Errorf("held %+v", held)
	}
	w.drop(bad)
	if o = apply(t, s, w.update(false)); len(o.Refused) != 0 {
		t.Errorf("outcome %+v after it was removed", o)
	}
}

func TestApplyWaitsForEnvoyAndContextEndsIt(t *testing.T) {
	cfg := config(t)
	s, _ := serve(t, cfg)
	w := newWorld(t)
	w.cluster("a")
	first := w.update(true)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Apply(ctx, first)
		ended <- err
	}()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("apply: %v, want that it was cancelled", err)
	}
	if held := s.Held(); held.Version != "" || len(held.Resources) > 0 {
		t.Errorf("held %+v before Envoy answered", held)
	}
	// The next is relative to what is held: nothing. Of the first, nothing is left.
	w = newWorld(t)
	w.cluster("b")
	second := w.update(false)
	e := dialEnvoy(t, cfg.Socket)
	apply(t, s, second)
	if held := s.Held(); held.Version != second.Version || len(held.Resources) != 1 {
		t.Errorf("held %+v", held)
	}
	got := e.take()
	last := slices.IndexFunc(got, func(s string) bool { return strings.Contains(s, "cluster b") })
	if last < 0 || slices.ContainsFunc(got[last:], func(s string) bool { return strings.Contains(s, " a") }) {
		t.Errorf("sent %q", got)
	}
}

// An Envoy that dies of what it is given must not keep back what comes after that.
func TestAnEnvoyThatGoesBeforeItAnswersHoldsNothingBack(t *testing.T) {
	cfg := config(t)
	s, _ := serve(t, cfg)
	w := newWorld(t)
	w.cluster("good")
	e := dialEnvoy(t, cfg.Socket)
	first := w.update(true)
	apply(t, s, first)
	e.hangUp()
	until(t, s, "that Envoy is gone", func(o resource.Observed) bool { return !o.EnvoyConnected })

	mute := dialEnvoy(t, cfg.Socket, func(e *fakeEnvoy) { e.silence = true })
	until(t, s, "another Envoy", func(o resource.Observed) bool { return o.EnvoyConnected })
	bad := w.cluster("deadly")
	outcome := make(chan resource.Outcome, 1)
	go func(u resource.Update) { outcome <- apply(t, s, u) }(w.update(false))
	mute.hangUp()
	if o := <-outcome; len(o.Pending) != 1 || o.Pending[0] != bad {
		t.Errorf("what nobody answered for: %+v, want that it is pending", o)
	}
	if o := s.Observed(); o.Version != first.Version {
		t.Errorf("observed version %s, want the first", o.Version)
	}
	// While there is none, everything is taken in, each relative to the one before.
	w.drop(bad)
	next := w.cluster("next")
	if o := apply(t, s, w.update(false)); len(o.Pending) != 1 || o.Pending[0] != next {
		t.Errorf("without an Envoy: %+v, want that it is pending", o)
	}
	last := w.cluster("last")
	newest := w.update(false)
	if o := apply(t, s, newest); !slices.Equal(o.Pending, []resource.Name{last, next}) {
		t.Errorf("without an Envoy: %+v, want that both are pending", o)
	}
	e = dialEnvoy(t, cfg.Socket)
	until(t, s, "the newest version", func(o resource.Observed) bool { return o.Version == newest.Version && len(o.Pending) == 0 })
	got := strings.Join(e.take(), " ")
	if strings.Contains(got, "deadly") || !strings.Contains(got, "next") || !strings.Contains(got, "last") || !strings.Contains(got, "good") {
		t.Errorf("the next Envoy was sent %q", got)
	}
	if held := s.Held(); held.Version != newest.Version || len(held.Resources) != 3 {
		t.Errorf("held %+v", held)
	}
}

func TestNewestStreamIsServed(t *testing.T) {
	cfg := config(t)
	s, _ := serve(t, cfg)
	w := newWorld(t)
	w.cluster("a")
	old := dialEnvoy(t, cfg.Socket, func(e *fakeEnvoy) { e.silence = true })
	until(t, s, "connected", func(o resource.Observed) bool { return o.EnvoyConnected })
	e := dialEnvoy(t, cfg.Socket)
	if err := <-old.ended; err == nil {
		t.Error("the old stream ended without an error")
	}
	apply(t, s, w.update(true))
	if got := e.take(); !slices.Contains(got, "cluster a") {
		t.Errorf("sent %q", got)
	}
	e.hangUp()
	until(t, s, "gone", func(o resource.Observed) bool { return !o.EnvoyConnected && !o.Configured })
}

func TestLastGoodIsServedBeforeAnythingIsReceived(t *testing.T) {
	cfg := config(t)
	cfg.StateDir = filepath.Join(t.TempDir(), "state")
	s, stop := serve(t, cfg)
	w := newWorld(t)
	w.cluster("good")
	w.cluster("turns")
	bad := false
	dialEnvoy(t, cfg.Socket, func(e *fakeEnvoy) { e.refuse = func(n string) bool { return bad && n == "turns" } })
	apply(t, s, w.update(true))
	w.trustBundle()
	w.cluster("turns", connectTimeout(time.Minute))
	bad = true
	want := w.update(false)
	if o := apply(t, s, want); len(o.Refused) != 1 {
		t.Fatalf("outcome %+v", o)
	}
	held := s.Held()
	stop()

	s, _ = serve(t, cfg)
	got := s.Held()
	if got.Version != want.Version || len(got.Resources) != 3 || !slices.Equal(got.Refused, held.Refused) || got.Mark.Epoch != 1 {
		t.Errorf("restored %+v, want %+v", got, held)
	}
	if o := s.Observed(); o.Configured || o.Version != want.Version {
		t.Errorf("observed %+v before Envoy was there", o)
	}
	// It is the content that was accepted that is served.
	e := dialEnvoy(t, cfg.Socket)
	until(t, s, "configured", func(o resource.Observed) bool { return o.Configured && len(o.Refused) == 1 })
	if got := e.take(); !slices.Contains(got, "cluster good,turns") {
		t.Errorf("sent %q", got)
	}
}

func TestSocketIsForOneServerAndItsOwner(t *testing.T) {
	cfg := config(t)
	// A stale socket, as a killed process leaves it.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: cfg.Socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s, stop := serve(t, cfg)
	dialEnvoy(t, cfg.Socket)
	until(t, s, "connected", func(o resource.Observed) bool { return o.EnvoyConnected })
	fi, err := os.Stat(cfg.Socket)
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("socket has mode %v (%v), want 0600", fi.Mode(), err)
	}
	second, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "another process serves it") {
		t.Errorf("a second server: %v", err)
	}
	if held := second.Held(); held.Version != "" {
		t.Errorf("a server that did not run holds %+v", held)
	}
	if _, err := second.Apply(context.Background(), resource.Update{}); !errors.Is(err, ErrStopped) {
		t.Errorf("apply to a server that has ended: %v", err)
	}
	stop()
	if _, err := os.Stat(cfg.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if err := os.WriteFile(cfg.Socket, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	third, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := third.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if b, err := os.ReadFile(cfg.Socket); string(b) != "precious" {
		t.Errorf("the file in the way is now %q (%v)", b, err)
	}
}
