package bootstrap_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const release = "aether-system"

func domain(t testing.TB) spiffeid.TrustDomain {
	t.Helper()
	td, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		t.Fatal(err)
	}
	return td
}

func controller(t testing.TB) spiffeid.ID {
	t.Helper()
	id, err := spiffeid.Controller(domain(t), release)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// gateways is the set of dedicated Gateways' accounts, as namespace/account.
type gateways map[string]bool

func (g gateways) HasAccount(namespace, account string) bool { return g[namespace+"/"+account] }

// rig is the real bootstrap path on loopback: CA, token file, server, TLS.
type rig struct {
	t      testing.TB
	ca     *ca.Authority
	server *bootstrap.Server
	addr   string
	tokens string // the token file's path
	log    *logs
	reg    *prometheus.Registry
	stop   func() // stops serving and waits; may be called once more
}

type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// run runs f until the test ends and has it end without error.
func run(t testing.TB, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func newCA(t testing.TB) *ca.Authority {
	t.Helper()
	a, err := ca.New(ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}, TrustDomain: domain(t)})
	if err != nil {
		t.Fatal(err)
	}
	run(t, a.Run)
	select {
	case <-a.Ready():
	case <-time.After(time.Minute):
		t.Fatalf("CA not ready: %v", a.Fault())
	}
	return a
}

func newRig(t testing.TB, change func(*bootstrap.Config), entries ...attest.Entry) *rig {
	t.Helper()
	r := &rig{t: t, ca: newCA(t), tokens: filepath.Join(t.TempDir(), "tokens.json"), log: &logs{}, reg: prometheus.NewRegistry()}
	if err := attest.WriteTokenFile(r.tokens, entries); err != nil {
		t.Fatal(err)
	}
	cfg := bootstrap.Config{
		Attester: attest.NewTokenFile(r.tokens), CA: r.ca, TrustDomain: domain(t), Registerer: r.reg,
		Allow: bootstrap.AllowList{ReleaseNamespace: release, Gateways: gateways{"shop/edge-coxswain": true}},
		Log:   slog.New(slog.NewJSONHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	if r.server, err = bootstrap.New(cfg); err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = lis.Addr().String()
	conf := r.ca.ServerTLS(controller(t))
	r.stop = run(t, func(ctx context.Context) error { return r.server.Serve(ctx, lis, conf) })
	return r
}

func entry(namespace, account, pod string) attest.Entry {
	return attest.Entry{Token: attest.NewToken(), Identity: attest.Identity{
		Namespace: namespace, ServiceAccount: account,
		Pod: spiffeid.Pod{Name: pod, UID: "uid-of-" + pod, Node: "node-1"},
	}}
}

func proxy() attest.Entry { return entry(release, spiffeid.SharedProxyAccount, "proxy-1") }

// clientTLS trusts the roots of a and accepts the controller's ID only, as proxies do.
func clientTLS(t testing.TB, a *ca.Authority) *tls.Config {
	t.Helper()
	conf := tlsconfig.TLSClientConfig(
		x509bundle.FromX509Authorities(domain(t), a.Roots().Certificates()), tlsconfig.AuthorizeID(controller(t)))
	return conf
}

// dial connects as a client does that trusts our root.
func (r *rig) dial(opts ...grpc.DialOption) discoveryv1.DiscoveryClient {
	r.t.Helper()
	return discoveryv1.NewDiscoveryClient(r.conn(clientTLS(r.t, r.ca), opts...))
}

func (r *rig) conn(conf *tls.Config, opts ...grpc.DialOption) *grpc.ClientConn {
	r.t.Helper()
	opts = append([]grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(conf))}, opts...)
	conn, err := grpc.NewClient("passthrough:///"+r.addr, opts...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// soon bounds one call; a test that reaches it has failed.
func soon(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newKey(t testing.TB, c elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newCSR(t testing.TB, tmpl *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, tmpl, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func request(t testing.TB, token svid.Token) *discoveryv1.BootstrapRequest {
	t.Helper()
	return &discoveryv1.BootstrapRequest{
		SaToken: token.Reveal(), WireVersion: 1,
		CsrDer: newCSR(t, &x509.CertificateRequest{}, newKey(t, elliptic.P256())),
	}
}

func wantCode(t testing.TB, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("code %s (%v), want %s", got, err, want)
	}
}

// counts returns the bootstrap counter by "result reason".
func (r *rig) counts() map[string]float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "coxswain_discovery_bootstrap_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			out[labels["result"]+" "+labels["reason"]] = m.GetCounter().GetValue()
		}
	}
	return out
}

// await repeats look until it is satisfied: for what the server does after the client
// has its answer.
func await(t testing.TB, what string, look func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !look(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		<-time.After(time.Millisecond)
	}
}
