// Package controller is the other side of the discovery channel for tests of its
// clients: real listeners with real TLS, that do exactly, and only, what a test says,
// be it hostile. It is no model of the controller.
package controller

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/timestamppb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
)

// Who is who.
const (
	TrustDomain = "test.example"
	ServerID    = "spiffe://test.example/ns/aether-system/sa/aether-controller"
	ProxyID     = "spiffe://test.example/ns/aether-system/sa/coxswain-shared-proxy"
	Token       = "a-token-that-must-never-be-logged"
	WireVersion = 1
)

// Patience bounds every wait of a test.
const Patience = 20 * time.Second

// Answer is how Bootstrap answers one request.
type Answer func(*discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error)

// Controller is both listeners and the CA behind them.
type Controller struct {
	CA        *CA
	Bootstrap *Listener
	Streams   *Listener
	Asked     chan *discoveryv1.BootstrapRequest // every request, as it arrives
	Opened    chan *Stream                       // every stream, when its first message has arrived

	t   testing.TB
	dir string

	mu     sync.Mutex // guards what follows
	answer Answer
	cert   *tls.Certificate
	roots  *x509.CertPool // of clients
}

// New starts both listeners, and writes the token and the bundle as they are mounted.
func New(t testing.TB) *Controller {
	t.Helper()
	c := &Controller{
		t: t, dir: t.TempDir(), CA: NewCA(t),
		Asked: make(chan *discoveryv1.BootstrapRequest, 1024), Opened: make(chan *Stream, 1024),
	}
	c.answer = func(r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return c.Issue(c.CA, r, ProxyID, time.Hour), nil
	}
	c.Trust(c.CA)
	c.Present(c.CA.Server(t, ServerID))
	if err := os.WriteFile(c.TokenPath(), []byte(Token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	WriteBundle(t, c.BundlePath(), c.CA.Root)
	c.Bootstrap = newListener(c, &bootstrapServer{c: c}, false)
	c.Streams = newListener(c, &streamServer{c: c}, true)
	return c
}

// TokenPath is where the token is mounted.
func (c *Controller) TokenPath() string { return filepath.Join(c.dir, "token") }

// BundlePath is where the trust bundle is mounted.
func (c *Controller) BundlePath() string { return filepath.Join(c.dir, "ca.crt") }

// Answer replaces how Bootstrap answers.
func (c *Controller) Answer(a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = a
}

// Present replaces the certificate of both listeners for the handshakes to come.
func (c *Controller) Present(cert *tls.Certificate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cert = cert
}

// Trust replaces the CAs whose clients may open streams.
func (c *Controller) Trust(cas ...*CA) {
	pool := x509.NewCertPool()
	for _, ca := range cas {
		pool.AddCert(ca.Root)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.roots = pool
}

// Issue is a correct answer: an SVID for the key that the request proves.
func (c *Controller) Issue(ca *CA, r *discoveryv1.BootstrapRequest, id string, ttl time.Duration) *discoveryv1.BootstrapResponse {
	csr, err := x509.ParseCertificateRequest(r.GetCsrDer())
	if err != nil {
		c.t.Errorf("certificate request: %v", err)
		return nil
	}
	if err := csr.CheckSignature(); err != nil {
		c.t.Errorf("certificate request: %v", err)
	}
	leaf := ca.Leaf(c.t, id, csr.PublicKey, time.Now().Add(ttl))
	return &discoveryv1.BootstrapResponse{
		SvidChainDer: [][]byte{leaf.Raw}, TrustBundleDer: [][]byte{ca.Root.Raw},
		NotAfter: timestamppb.New(leaf.NotAfter), WireVersion: WireVersion,
	}
}

// Listener is one listener, which can go away and come back at the same address.
type Listener struct {
	c      *Controller
	impl   discoveryv1.DiscoveryServer
	mutual bool
	addr   string
	server *grpc.Server
}

func newListener(c *Controller, impl discoveryv1.DiscoveryServer, mutual bool) *Listener {
	l := &Listener{c: c, impl: impl, mutual: mutual, addr: "127.0.0.1:0"}
	l.Up()
	c.t.Cleanup(l.Down)
	return l
}

// Endpoint is its address as a flag has it.
func (l *Listener) Endpoint() string { return "https://" + l.addr }

// Up listens.
func (l *Listener) Up() {
	l.c.t.Helper()
	lis, err := new(net.ListenConfig).Listen(context.Background(), "tcp", l.addr)
	if err != nil {
		l.c.t.Fatal(err)
	}
	l.addr = lis.Addr().String()
	l.server = grpc.NewServer(grpc.Creds(credentials.NewTLS(l.config())), grpc.MaxRecvMsgSize(1<<20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second}))
	discoveryv1.RegisterDiscoveryServer(l.server, l.impl)
	server := l.server
	go func() { _ = server.Serve(lis) }() // ends with Down
}

// Down ends the listener and all of its connections.
func (l *Listener) Down() { l.server.Stop() }

func (l *Listener) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		l.c.mu.Lock()
		defer l.c.mu.Unlock()
		config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*l.c.cert}, NextProtos: []string{"h2"}}
		if l.mutual {
			config.ClientAuth, config.ClientCAs = tls.RequireAndVerifyClientCert, l.c.roots
		}
		return config, nil
	}}
}

type bootstrapServer struct {
	discoveryv1.UnimplementedDiscoveryServer
	c *Controller
}

func (s *bootstrapServer) Bootstrap(_ context.Context, r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
	s.c.mu.Lock()
	answer := s.c.answer
	s.c.mu.Unlock()
	s.c.Asked <- r
	return answer(r)
}
