package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/types/known/wrapperspb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come; it bounds failures only.
const patience = 20 * time.Second

const (
	poolID       = "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy"
	edgeID       = "spiffe://cluster.local/ns/infra/sa/edge-coxswain"
	controllerID = "spiffe://cluster.local/ns/aether-system/sa/aether-controller"
)

var pool = scope.SharedPool()

// authority is a CA of the test's own.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{t: t, key: key}
	a.cert = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
	}, nil, key)
	return a
}

func (a *authority) sign(tmpl, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	a.t.Helper()
	if parent == nil {
		parent = tmpl
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

// leaf issues an SVID; pod may be empty.
func (a *authority) leaf(id, pod string, change ...func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	u, err := url.Parse(id)
	if err != nil {
		a.t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		URIs: []*url.URL{u}, KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		NotBefore:   time.Now().Add(-24 * time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if pod != "" {
		ext, err := spiffeid.MarshalPod(spiffeid.Pod{Name: pod, UID: pod + "-uid", Node: "node-1"})
		if err != nil {
			a.t.Fatal(err)
		}
		tmpl.ExtraExtensions = append(tmpl.ExtraExtensions, ext)
	}
	for _, f := range change {
		f(tmpl)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	cert := a.sign(tmpl, a.cert, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (a *authority) pool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// serverTLS is a configuration as the real CA makes it.
func (a *authority) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, SessionTicketsDisabled: true,
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: a.pool(),
		Certificates: []tls.Certificate{a.leaf(controllerID, "")},
	}
}

// gateways is what the test says of dedicated Gateways.
type gateways struct {
	mu      sync.Mutex
	classes map[string]string
}

func (g *gateways) Dedicated(namespace, name string) (string, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.classes[namespace+"/"+name]
	return c, ok
}

func (g *gateways) set(key, class string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if class == "" {
		delete(g.classes, key)
	} else {
		g.classes[key] = class
	}
}

// rig is a server with a world, on loopback, with mutual TLS.
type rig struct {
	t     testing.TB
	ca    *authority
	world *world.World
	gws   *gateways
	s     *server.Server
	addr  string
	log   *records
	stop  func() // and wait
}

// records keeps what is logged.
type records struct {
	slog.Handler
	mu   sync.Mutex
	text []string
	news chan struct{} // closed and replaced with each line
}

func (r *records) Enabled(context.Context, slog.Level) bool { return true }

func (r *records) Handle(_ context.Context, rec slog.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := rec.Message
	rec.Attrs(func(a slog.Attr) bool { line += " " + a.String(); return true })
	r.text = append(r.text, line)
	close(r.news)
	r.news = make(chan struct{})
	return nil
}

// wait waits for a line that has all the parts.
func (r *records) wait(t testing.TB, parts ...string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		r.mu.Lock()
		text, news := slices.Clone(r.text), r.news
		r.mu.Unlock()
		for _, line := range text {
			if !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) }) {
				return
			}
		}
		select {
		case <-news:
		case <-deadline:
			t.Fatalf("not logged in time: %q; logged:\n%s", parts, strings.Join(text, "\n"))
		}
	}
}

func newRig(t testing.TB, change ...func(*server.Config)) *rig {
	t.Helper()
	td, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{
		t: t, ca: newAuthority(t), gws: &gateways{classes: map[string]string{"infra/edge": "coxswain"}},
		world: world.New(world.Config{}), log: &records{news: make(chan struct{})},
	}
	r.world.Publish(map[scope.Scope]resource.Delta{pool: {Changed: []*resource.Resource{res(t, "a", "1"), res(t, "b", "1")}}, edge(t): {}}, watermark.Mark{})
	r.world.SetSynced()
	cfg := server.Config{
		TrustDomain: td,
		Authorizer:  server.Rule{TrustDomain: td, ReleaseNamespace: "aether-system", Gateways: r.gws},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			return r.world.Subscribe(ctx, s, p, have, superseded)
		},
		Proxies: r.world.Proxies,
		Log:     slog.New(r.log),
	}
	for _, f := range change {
		f(&cfg)
	}
	if r.s, err = server.New(cfg); err != nil {
		t.Fatal(err)
	}
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = lis.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.s.Serve(ctx, lis, r.ca.serverTLS()) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(patience):
			t.Error("Serve did not return")
		}
	})
	t.Cleanup(r.stop)
	return r
}

func edge(t testing.TB) scope.Scope {
	t.Helper()
	s, err := scope.Gateway("infra", "edge")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func res(t testing.TB, name, content string) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, wrapperspb.String(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// client is the other end of a stream, which says whatever the test wants it to.
type client struct {
	discoveryv1.Discovery_StreamClient
	t     testing.TB
	close func()
	asm   discovery.Assembler
}

func (r *rig) dial(certs ...tls.Certificate) *grpc.ClientConn {
	r.t.Helper()
	conf := &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: certs, InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error { // by SPIFFE ID, as clients do
			if len(cs.PeerCertificates) == 0 || len(cs.PeerCertificates[0].URIs) != 1 || cs.PeerCertificates[0].URIs[0].String() != controllerID {
				return errors.New("not the controller")
			}
			_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: r.ca.pool()})
			return err
		},
	}
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(credentials.NewTLS(conf)))
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

func (r *rig) open(certs ...tls.Certificate) *client {
	r.t.Helper()
	conn := r.dial(certs...)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c := &client{t: r.t, close: sync.OnceFunc(func() { cancel(); _ = conn.Close() })}
	r.t.Cleanup(c.close)
	var err error
	if c.Discovery_StreamClient, err = discoveryv1.NewDiscoveryClient(conn).Stream(ctx); err != nil {
		// What a TLS server thinks of us is told by the first read.
		c.Discovery_StreamClient = failed{err: err}
	}
	return c
}

// failed is a stream that could not be opened.
type failed struct {
	discoveryv1.Discovery_StreamClient
	err error
}

func (f failed) Send(*discoveryv1.ClientMessage) error     { return f.err }
func (f failed) Recv() (*discoveryv1.ServerMessage, error) { return nil, f.err }

func subscribeMessage(pod string, change ...func(*discoveryv1.Subscribe)) *discoveryv1.ClientMessage {
	m := &discoveryv1.Subscribe{NodeId: pod, WireVersion: discovery.WireVersion, Scope: discovery.ScopeToProto(pool), EnvoyVersion: "1.40.0"}
	for _, f := range change {
		f(m)
	}
	return &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Subscribe{Subscribe: m}}
}

// join opens the stream of a pod of the shared pool.
func (r *rig) join(pod string, change ...func(*discoveryv1.Subscribe)) *client {
	r.t.Helper()
	c := r.open(r.ca.leaf(poolID, pod))
	c.say(subscribeMessage(pod, change...))
	return c
}

func (c *client) say(m *discoveryv1.ClientMessage) {
	c.t.Helper()
	_ = c.Send(m) // why it did not go is what Recv says
}

// snapshot takes the snapshot that must come next.
func (c *client) snapshot() snapshot.Snapshot {
	c.t.Helper()
	for {
		m, err := c.Recv()
		if err != nil {
			c.t.Fatalf("wanted a snapshot, got %v", err)
		}
		if m.GetSnapshot() == nil {
			c.t.Fatalf("wanted a snapshot, got %v", m)
		}
		s, done, err := c.asm.Add(m.GetSnapshot())
		if err != nil {
			c.t.Fatal(err)
		}
		if done {
			return s
		}
	}
}

func (c *client) answer(s snapshot.Snapshot, o resource.Outcome) {
	c.t.Helper()
	c.say(discovery.AnswerToProto(snapshot.Answer{Nonce: s.Nonce, Version: s.Version, Outcome: o}))
}

// end reads until the stream ends.
func (c *client) end() (said []*discoveryv1.ServerMessage, err error) {
	for {
		m, err := c.Recv()
		if err != nil {
			return said, err
		}
		said = append(said, m)
	}
}

// until waits for the world to be observed as ok wants it.
func (r *rig) until(what string, ok func([]fleet.Proxy) bool) {
	r.t.Helper()
	events, stop := r.world.Observe()
	defer stop()
	deadline := time.After(patience)
	for !ok(r.world.Proxies()) {
		select {
		case <-events:
		case <-deadline:
			r.t.Fatalf("not seen in time: %s; proxies: %+v", what, r.world.Proxies())
		}
	}
}

// withExtension makes a certificate carry an extension of its own.
func withExtension(oid asn1.ObjectIdentifier, value []byte) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.ExtraExtensions = append(c.ExtraExtensions, pkix.Extension{Id: oid, Value: value})
	}
}
