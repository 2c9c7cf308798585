package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/watermark"
)

func publish(r *rig, rs ...*resource.Resource) {
	r.world.Publish(map[scope.Scope]resource.Delta{pool: {Changed: rs}}, watermark.Mark{})
}

func TestAStream(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := newRig(t, func(c *server.Config) { c.Registerer = registry })
	c := r.join("p1")
	first := c.snapshot()
	if !first.Full || len(first.Changed) != 2 || first.Version != r.world.Version(pool) {
		t.Errorf("first snapshot %+v", first)
	}
	publish(r, res(t, "b", "2"))
	c.answer(first, resource.Outcome{Refused: []resource.Refusal{{Name: first.Changed[0].Name, Detail: "no"}}})
	second := c.snapshot()
	if second.Full || len(second.Changed) != 1 || second.Changed[0].Name.Name != "b" {
		t.Errorf("second snapshot %+v, want b alone", second)
	}
	c.answer(second, resource.Outcome{Pending: []resource.Name{second.Changed[0].Name}})
	c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_NodeStatus{
		NodeStatus: discovery.StatusToProto([]uint32{8080}, fleet.Status{SVIDSerial: "1f"}),
	}})
	r.until("what p1 runs", func(ps []fleet.Proxy) bool {
		return len(ps) == 1 && ps[0].ID == "p1" && ps[0].PodUID == "p1-uid" && ps[0].Node == "node-1" && ps[0].Identity == poolID &&
			ps[0].Connected && ps[0].Version == second.Version && len(ps[0].Pending) == 1 && len(ps[0].BoundPorts) == 1 &&
			ps[0].Serial != "" && ps[0].EnvoyVersion == "1.40.0" && ps[0].Status.SVIDSerial == "1f"
	})
	if err := c.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.end(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ended with %v, want none", err)
	}
	r.until("p1 gone", func(ps []fleet.Proxy) bool { return len(ps) == 1 && !ps[0].Connected })

	r.stop() // so that everything is counted
	for name, want := range map[string]float64{
		"coxswain_discovery_connected_clients":    0,
		"coxswain_discovery_streams_total":        1,
		"coxswain_discovery_snapshots_sent_total": 2,
		"coxswain_discovery_resources_sent_total": 3,
		"coxswain_discovery_nacks_total":          1,
		"coxswain_discovery_ack_seconds":          2,
		"coxswain_discovery_laggards":             0,
	} {
		if got := value(t, registry, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if value(t, registry, "coxswain_discovery_sent_bytes_total") == 0 {
		t.Error("no bytes were counted")
	}
}

func value(t *testing.T, g prometheus.Gatherer, name string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			m := f.GetMetric()[0]
			return m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	t.Fatalf("no one metric %s", name)
	return 0
}

func TestAnUnknownVersionIsAskedFor(t *testing.T) {
	r := newRig(t)
	c := r.join("p1", func(m *discoveryv1.Subscribe) { m.HaveVersion = "of another replica" })
	m, err := c.Recv()
	if err != nil || m.GetInventoryRequest() == nil {
		t.Fatalf("got %v, %v; want the inventory asked for", m, err)
	}
	a, b := res(t, "a", "1"), res(t, "b", "old")
	for m := range discovery.InventoryChunks(func(yield func(snapshot.Ref) bool) {
		_ = yield(snapshot.Ref{Name: a.Name, Hash: a.Hash}) && yield(snapshot.Ref{Name: b.Name, Hash: b.Hash})
	}) {
		c.say(m)
	}
	if got := c.snapshot(); got.Full || len(got.Changed) != 1 || got.Changed[0].Name != b.Name {
		t.Errorf("got %+v, want b alone", got)
	}
}

func TestAGiantResourceIsContinued(t *testing.T) {
	r := newRig(t)
	giant := res(t, "giant", strings.Repeat("x", 5<<20))
	publish(r, giant)
	c := r.join("p1")
	var got *resource.Resource
	for _, x := range c.snapshot().Changed {
		if x.Name == giant.Name {
			got = x
		}
	}
	if got == nil || !bytes.Equal(got.Payload, giant.Payload) {
		t.Error("it did not arrive as it was sent")
	}
}

func TestStatusCodes(t *testing.T) {
	r := newRig(t, func(c *server.Config) { c.SubscribeWait = 50 * time.Millisecond })
	foreign := newAuthority(t)
	// Whoever has the shared pool's identity and the name of our own CA, but not its key.
	forged := *r.ca.cert
	forged.PublicKey = foreign.key.Public()
	impostor := &authority{t: t, cert: &forged, key: foreign.key}
	own := func(*discoveryv1.Subscribe) {}
	dedicated := func(s *discoveryv1.Subscribe) { s.Scope = discovery.ScopeToProto(edge(t)) }
	tests := map[string]struct {
		certs []tls.Certificate
		with  func(*discoveryv1.Subscribe)
		code  codes.Code
		text  string // of the status; empty: not looked at
	}{
		"the shared proxy subscribes to the pool": {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: own},
		"the Gateway's proxy subscribes to it":    {certs: []tls.Certificate{r.ca.leaf(edgeID, "p")}, with: dedicated},
		"no certificate":                          {with: own, code: codes.Unavailable},
		"a foreign CA":                            {certs: []tls.Certificate{foreign.leaf(poolID, "p")}, with: own, code: codes.Unavailable},
		"a forged signature":                      {certs: []tls.Certificate{impostor.leaf(poolID, "p")}, with: own, code: codes.Unavailable},
		"an expired certificate":                  {certs: []tls.Certificate{r.ca.leaf(poolID, "p", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })}, with: own, code: codes.Unavailable},
		"a certificate for servers only":          {certs: []tls.Certificate{r.ca.leaf(poolID, "p", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })}, with: own, code: codes.Unavailable},
		"a certificate without an ID":             {certs: []tls.Certificate{r.ca.leaf(poolID, "p", func(c *x509.Certificate) { c.URIs = nil })}, with: own, code: codes.Unauthenticated, text: "unauthenticated"},
		"a certificate with two IDs": {certs: []tls.Certificate{r.ca.leaf(poolID, "p", func(c *x509.Certificate) {
			c.URIs = append(c.URIs, &url.URL{Scheme: "spiffe", Host: "cluster.local", Path: "/x"})
		})}, with: own, code: codes.Unauthenticated},
		"an ID of another trust domain":                {certs: []tls.Certificate{r.ca.leaf(strings.Replace(poolID, "cluster.local", "evil.example", 1), "p")}, with: own, code: codes.Unauthenticated},
		"a pod extension that is not one":              {certs: []tls.Certificate{r.ca.leaf(poolID, "", withExtension(spiffeid.PodExtensionOID(), []byte("junk")))}, with: own, code: codes.Unauthenticated},
		"the controller's identity":                    {certs: []tls.Certificate{r.ca.leaf(controllerID, "p")}, with: own, code: codes.PermissionDenied},
		"the Gateway's proxy wants the pool":           {certs: []tls.Certificate{r.ca.leaf(edgeID, "p")}, with: own, code: codes.PermissionDenied, text: "permission denied"},
		"the shared proxy wants the Gateway":           {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: dedicated, code: codes.PermissionDenied, text: "permission denied"},
		"the shared proxy's name in another namespace": {certs: []tls.Certificate{r.ca.leaf("spiffe://cluster.local/ns/infra/sa/coxswain-shared-proxy", "p")}, with: own, code: codes.PermissionDenied},
		"the account of a Gateway that is not there": {certs: []tls.Certificate{r.ca.leaf("spiffe://cluster.local/ns/infra/sa/gone-coxswain", "p")}, with: func(s *discoveryv1.Subscribe) {
			s.Scope = &discoveryv1.Scope{Scope: &discoveryv1.Scope_Gateway_{Gateway: &discoveryv1.Scope_Gateway{Namespace: "infra", Name: "gone"}}}
		}, code: codes.PermissionDenied},
		"another pod's name":       {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.NodeId = "victim" }, code: codes.PermissionDenied, text: "permission denied"},
		"no pod's name":            {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.NodeId = "" }, code: codes.PermissionDenied},
		"no pod in the SVID":       {certs: []tls.Certificate{r.ca.leaf(poolID, "")}, with: func(s *discoveryv1.Subscribe) { s.NodeId = "" }, code: codes.PermissionDenied},
		"no scope":                 {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.Scope = nil }, code: codes.InvalidArgument},
		"an empty scope":           {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.Scope = &discoveryv1.Scope{} }, code: codes.InvalidArgument},
		"a Gateway without name":   {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.Scope = &discoveryv1.Scope{Scope: &discoveryv1.Scope_Gateway_{}} }, code: codes.InvalidArgument},
		"a newer wire version":     {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.WireVersion = 2 }, code: codes.FailedPrecondition, text: "wire version of the client is 2, of the controller 1"},
		"no wire version":          {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.WireVersion = 0 }, code: codes.FailedPrecondition},
		"wire version comes first": {certs: []tls.Certificate{r.ca.leaf(edgeID, "p")}, with: func(s *discoveryv1.Subscribe) { s.WireVersion, s.Scope, s.NodeId = 9, nil, "x" }, code: codes.FailedPrecondition},
		"ahead of this replica":    {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) { s.Watermark = &discoveryv1.Watermark{Epoch: 7} }, code: codes.Unavailable},
		"a refusal without a hash": {certs: []tls.Certificate{r.ca.leaf(poolID, "p")}, with: func(s *discoveryv1.Subscribe) {
			s.Refused = []*discoveryv1.ResourceRef{{TypeUrl: "t", Name: "n"}}
		}, code: codes.InvalidArgument},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := r.open(tt.certs...)
			defer c.close()
			c.say(subscribeMessage("p", tt.with))
			m, err := c.Recv()
			if tt.code == codes.OK {
				if err != nil || m.GetSnapshot() == nil {
					t.Fatalf("got %v, %v; want a snapshot", m, err)
				}
				return
			}
			st := status.Convert(err)
			if m != nil || st.Code() != tt.code {
				t.Fatalf("got %v, %v; want code %s before anything else", m, err, tt.code)
			}
			if tt.code == codes.PermissionDenied { // why is for the log alone
				r.log.wait(t, "stream ended", "code=PermissionDenied", "denied: ")
			}
			if tt.text != "" && st.Message() != tt.text {
				t.Errorf("text %q, want %q", st.Message(), tt.text)
			}
		})
	}
}

func TestWhoSaysNothingFirstIsEnded(t *testing.T) {
	r := newRig(t, func(c *server.Config) { c.FirstMessage = 100 * time.Millisecond })
	c := r.open(r.ca.leaf(poolID, "p"))
	defer c.close()
	if _, err := c.end(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the stream ended with %v, want %s", err, codes.DeadlineExceeded)
	}
}

func TestProtocolViolations(t *testing.T) {
	r := newRig(t, func(c *server.Config) { c.FirstMessage = time.Minute })
	tests := map[string]struct {
		say  func(*client)
		code codes.Code
	}{
		"an Ack comes first": {func(c *client) {
			c.answer(snapshot.Snapshot{Nonce: 1}, resource.Outcome{})
		}, codes.InvalidArgument},
		"a second Subscribe": {func(c *client) {
			c.say(subscribeMessage("p"))
			c.say(subscribeMessage("p"))
		}, codes.InvalidArgument},
		"a message of no kind": {func(c *client) {
			c.say(subscribeMessage("p"))
			c.say(&discoveryv1.ClientMessage{})
		}, codes.InvalidArgument},
		"an Ack of a nonce that was not sent": {func(c *client) {
			c.say(subscribeMessage("p"))
			s := c.snapshot()
			s.Nonce += 5
			c.answer(s, resource.Outcome{})
		}, codes.InvalidArgument},
		"an Ack of another version": {func(c *client) {
			c.say(subscribeMessage("p"))
			s := c.snapshot()
			s.Version = "x"
			c.answer(s, resource.Outcome{})
		}, codes.InvalidArgument},
		"a Nack of nothing": {func(c *client) {
			c.say(subscribeMessage("p"))
			s := c.snapshot()
			c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Nack{Nack: &discoveryv1.Nack{Version: s.Version, Nonce: s.Nonce}}})
		}, codes.InvalidArgument},
		"an inventory that nobody asked for": {func(c *client) {
			c.say(subscribeMessage("p"))
			c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Inventory{Inventory: &discoveryv1.Inventory{Resources: []*discoveryv1.ResourceRef{{TypeUrl: "t", Name: "n", Hash: make([]byte, 32)}}}}})
		}, codes.InvalidArgument},
		"an inventory that says one name twice": {func(c *client) {
			c.say(subscribeMessage("p", func(s *discoveryv1.Subscribe) { s.HaveVersion = "unknown" }))
			if m, err := c.Recv(); m.GetInventoryRequest() == nil {
				c.t.Fatalf("got %v, %v", m, err)
			}
			ref := &discoveryv1.ResourceRef{TypeUrl: "t", Name: "n", Hash: make([]byte, 32)}
			c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Inventory{Inventory: &discoveryv1.Inventory{Resources: []*discoveryv1.ResourceRef{ref, ref}}}})
		}, codes.InvalidArgument},
		"a port that is none": {func(c *client) {
			c.say(subscribeMessage("p"))
			c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_NodeStatus{NodeStatus: &discoveryv1.NodeStatus{BoundPorts: []uint32{1 << 20}}}})
		}, codes.InvalidArgument},
		"a message over the limit": {func(c *client) {
			c.say(subscribeMessage("p"))
			c.say(&discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Nack{Nack: &discoveryv1.Nack{Errors: []*discoveryv1.ResourceError{{Detail: strings.Repeat("x", 1<<20)}}}}})
		}, codes.ResourceExhausted},
		"a first message over the limit": {func(c *client) {
			c.say(subscribeMessage(strings.Repeat("x", 1<<20)))
		}, codes.ResourceExhausted},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := r.open(r.ca.leaf(poolID, "p"))
			defer c.close()
			tt.say(c)
			if _, err := c.end(); status.Code(err) != tt.code {
				t.Errorf("the stream ended with %v, want %s", err, tt.code)
			}
		})
	}
}

func TestOnlyStreamExistsHere(t *testing.T) {
	r := newRig(t)
	conn := r.dial(r.ca.leaf(poolID, "p"))
	defer conn.Close()
	_, err := discoveryv1.NewDiscoveryClient(conn).Bootstrap(t.Context(), &discoveryv1.BootstrapRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("Bootstrap: %v, want it unimplemented", err)
	}
}

func TestNothingIsServedBeforeTheSourceIsRead(t *testing.T) {
	r := newRig(t, func(c *server.Config) {
		c.Subscribe = func(_ context.Context, _ scope.Scope, _ fleet.Peer, _ snapshot.Have, _ func()) (server.Subscription, error) {
			return nil, fmt.Errorf("subscribe: %w", snapshot.ErrNotSynced)
		}
	})
	if _, err := r.join("p").end(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ended with %v, want it unavailable", err)
	}
}

func TestAStreamEndsWhenItsRightDoes(t *testing.T) {
	r := newRig(t)
	mine, other := r.open(r.ca.leaf(edgeID, "e1")), r.join("p1")
	mine.say(subscribeMessage("e1", func(s *discoveryv1.Subscribe) { s.Scope = discovery.ScopeToProto(edge(t)) }))
	mine.snapshot()
	other.snapshot()
	r.s.Recheck() // nothing has changed
	r.gws.set("infra/edge", "another-class")
	r.s.Recheck()
	if _, err := mine.end(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ended with %v, want permission denied", err)
	}
	r.until("the other stream unharmed", func(ps []fleet.Proxy) bool {
		return len(ps) == 2 && !ps[0].Connected && ps[1].ID == "p1" && ps[1].Connected
	})
}

func TestAStreamEndsWithItsSVID(t *testing.T) {
	r := newRig(t)
	c := r.open(r.ca.leaf(poolID, "p", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(1500 * time.Millisecond) }))
	c.say(subscribeMessage("p"))
	c.snapshot()
	if _, err := c.end(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream ended with %v, want unauthenticated", err)
	}
}

func TestARenewedStreamTakesOver(t *testing.T) {
	r := newRig(t)
	old := r.join("p1")
	s := old.snapshot()
	old.answer(s, resource.Outcome{})
	r.until("the ack", func(ps []fleet.Proxy) bool { return ps[0].Current })
	young := r.join("p1", func(m *discoveryv1.Subscribe) { m.HaveVersion = s.Version })
	if got := young.snapshot(); len(got.Changed)+len(got.Removed) != 0 || got.Full {
		t.Errorf("the new stream got %+v, want nothing again", got)
	}
	said, err := old.end()
	if status.Code(err) != codes.Aborted || len(said) != 0 {
		t.Errorf("the old stream ended with %v after %v, want aborted", err, said)
	}
	if v := r.world.Verdict(pool, []resource.Name{s.Changed[0].Name}, 0); !v.IsLive() {
		t.Errorf("after take-over %+v, want it live", v)
	}
}

func TestRenewAndGoodbye(t *testing.T) {
	r := newRig(t, func(c *server.Config) {
		c.MaxConnectionAge, c.GoodbyeGrace = 300*time.Millisecond, 200*time.Millisecond
	})
	c := r.join("p1")
	c.answer(c.snapshot(), resource.Outcome{})
	if n := r.s.Renew("rotation"); n != 1 {
		t.Errorf("%d clients were asked to renew, want 1", n)
	}
	m, err := c.Recv()
	if err != nil || m.GetRenew().GetReason() != "rotation" {
		t.Errorf("got %v, %v; want Renew", m, err)
	}
	said, err := c.end()
	if len(said) != 1 || said[0].GetGoodbye() == nil || status.Code(err) != codes.Unavailable {
		t.Errorf("an old connection ended with %v, %v; want Goodbye, then the end", said, err)
	}
}

func TestStoppingSaysGoodbye(t *testing.T) {
	r := newRig(t)
	c := r.join("p1")
	c.snapshot() // never answered
	r.stop()
	said, err := c.end()
	if len(said) != 1 || said[0].GetGoodbye() == nil || status.Code(err) != codes.Unavailable {
		t.Errorf("it ended with %v, %v; want Goodbye, then unavailable", said, err)
	}
}

func TestAsManyStreamsAsAllowed(t *testing.T) {
	r := newRig(t, func(c *server.Config) { c.MaxStreams = 1 })
	r.join("p1").snapshot()
	if _, err := r.join("p2").end(); status.Code(err) != codes.ResourceExhausted || len(status.Convert(err).Details()) != 1 {
		t.Errorf("one too many ended with %v, want it exhausted with a time to retry", err)
	}
}

// A client that does not read is ended like any other, and costs the others nothing.
func TestAClientThatDoesNotReadHoldsNothingUp(t *testing.T) {
	r := newRig(t)
	publish(r, res(t, "big", strings.Repeat("x", 8<<20)))
	deaf := r.join("deaf")
	if _, err := deaf.Recv(); err != nil { // so that it is subscribed
		t.Fatal(err)
	}
	good := r.join("good")
	good.answer(good.snapshot(), resource.Outcome{})
	r.until("the other's ack", func(ps []fleet.Proxy) bool { return len(ps) == 2 && ps[1].ID == "good" && ps[1].Current })
	// Its stream ends while it does not read, when its place is taken.
	again := r.join("deaf")
	again.answer(again.snapshot(), resource.Outcome{})
	r.until("its ack", func(ps []fleet.Proxy) bool { return ps[0].ID == "deaf" && ps[0].Current })
	r.log.wait(t, "stream ended", "node_id=deaf", "code=Aborted")
}

// Handshakes that never end hold neither other handshakes nor the end up.
func TestStalledHandshakes(t *testing.T) {
	r := newRig(t, func(c *server.Config) { c.Handshake = 500 * time.Millisecond })
	var stalled []net.Conn
	for i := range 20 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if i%2 == 0 { // the beginning of a ClientHello
			if _, err := conn.Write([]byte{22, 3, 1, 2, 0, 1}); err != nil {
				t.Fatal(err)
			}
		}
		stalled = append(stalled, conn)
	}
	r.join("p1").snapshot()
	for _, conn := range stalled {
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil {
			var timeout net.Error
			if errors.As(err, &timeout) && timeout.Timeout() {
				t.Error("a silent connection is still open")
			}
		}
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	r.stop()
}

func TestServeInsistsOnMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	tests := map[string]func(*tls.Config) *tls.Config{
		"none":                        func(*tls.Config) *tls.Config { return nil },
		"TLS 1.2":                     func(c *tls.Config) *tls.Config { c.MinVersion = tls.VersionTLS12; return c },
		"no client certificates":      func(c *tls.Config) *tls.Config { c.ClientAuth = tls.NoClientCert; return c },
		"client certificates if any":  func(c *tls.Config) *tls.Config { c.ClientAuth = tls.VerifyClientCertIfGiven; return c },
		"any client certificate":      func(c *tls.Config) *tls.Config { c.ClientAuth = tls.RequireAnyClientCert; return c },
		"the machine's roots":         func(c *tls.Config) *tls.Config { c.ClientCAs = nil; return c },
		"sessions that are resumable": func(c *tls.Config) *tls.Config { c.SessionTicketsDisabled = false; return c },
	}
	for name, weaken := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.s.Serve(t.Context(), lis, weaken(ca.serverTLS())); !errors.Is(err, server.ErrInsecure) {
				t.Errorf("Serve: %v, want it refused", err)
			}
			if _, err := lis.Accept(); err == nil {
				t.Error("the listener is still open")
			}
		})
	}
}

func TestRule(t *testing.T) {
	td, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	gw := func(ns, name string) scope.Scope {
		s, err := scope.Gateway(ns, name)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	rule := server.Rule{TrustDomain: td, ReleaseNamespace: "aether-system", Gateways: &gateways{classes: map[string]string{
		"infra/edge": "coxswain", "aether-system/coxswain-shared": "proxy", "aether-system/aether": "controller", "infra/" + strings.Repeat("a", 250): "coxswain",
	}}}
	tests := map[string]struct {
		identity string
		scope    scope.Scope
		allowed  bool
	}{
		"the shared proxy, the pool":                    {poolID, pool, true},
		"the Gateway's account, the Gateway":            {edgeID, gw("infra", "edge"), true},
		"no identity, the pool":                         {"", pool, false},
		"the shared proxy, no scope":                    {poolID, scope.Scope{}, false},
		"the shared proxy, a Gateway":                   {poolID, gw("infra", "edge"), false},
		"the Gateway's account, the pool":               {edgeID, pool, false},
		"the account in another namespace, the Gateway": {"spiffe://cluster.local/ns/other/sa/edge-coxswain", gw("infra", "edge"), false},
		"the account in another domain, the Gateway":    {"spiffe://other/ns/infra/sa/edge-coxswain", gw("infra", "edge"), false},
		"the account, a Gateway of another namespace":   {edgeID, gw("other", "edge"), false},
		"the account of another class":                  {"spiffe://cluster.local/ns/infra/sa/edge-other", gw("infra", "edge"), false},
		"a Gateway whose account is the shared proxy's": {poolID, gw("aether-system", "coxswain-shared"), false},
		"a Gateway whose account is the controller's":   {controllerID, gw("aether-system", "aether"), false},
		"a Gateway whose account would be too long":     {"spiffe://cluster.local/ns/infra/sa/" + strings.Repeat("a", 250) + "-coxswain", gw("infra", strings.Repeat("a", 250)), false},
		"more of a path than an account":                {poolID + "/x", pool, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := rule.Authorize(fleet.Peer{Identity: tt.identity}, tt.scope); (err == nil) != tt.allowed {
				t.Errorf("Authorize: %v, want allowed %v", err, tt.allowed)
			}
		})
	}
	if err := (server.Rule{TrustDomain: td, ReleaseNamespace: "aether-system"}).Authorize(fleet.Peer{Identity: edgeID}, gw("infra", "edge")); err == nil {
		t.Error("without Gateways a Gateway's scope is allowed")
	}
}

func TestNewWantsWhatItNeeds(t *testing.T) {
	if diff := cmp.Diff(true, func() bool { _, err := server.New(server.Config{}); return err != nil }()); diff != "" {
		t.Error("an empty configuration is accepted")
	}
}
