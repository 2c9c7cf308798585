package identity_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/svid"
	"aether.io/aether/internal/test/controller"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is a log that can be read while it is written.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func config(c *controller.Controller, to *log) identity.Config {
	return identity.Config{
		Endpoint: c.Bootstrap.Endpoint(), TokenPath: c.TokenPath(), BundlePath: c.BundlePath(),
		TrustDomain: spiffeid.RequireTrustDomainFromString(controller.TrustDomain),
		ServerID:    spiffeid.RequireFromString(controller.ServerID),
		Poll:        10 * time.Millisecond,
		Log:         slog.New(slog.NewTextHandler(to, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// run starts a Source and stops it with the test.
func run(t *testing.T, cfg identity.Config) (*identity.Source, <-chan *identity.SVID) {
	t.Helper()
	issued := make(chan *identity.SVID, 1024)
	cfg.OnSVID = func(s *identity.SVID) { issued <- s }
	s, err := identity.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := controller.Wait(t, "end of Run", done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return s, issued
}

// failure waits for the first failure that fits.
func failure(t *testing.T, s *identity.Source, fits func(error) bool) error {
	t.Helper()
	for {
		changed := s.Changed()
		if err := s.Failure(); err != nil && fits(err) {
			return err
		}
		controller.Wait(t, fmt.Sprintf("such a failure, the last is: %v", s.Failure()), changed)
	}
}

func anything(error) bool { return true }

func TestSourceProvesItsKeyAndKeepsIt(t *testing.T) {
	c := controller.New(t)
	var out log
	cfg := config(c, &out)
	registry := prometheus.NewRegistry()
	cfg.Registerer = registry
	s, issued := run(t, cfg)
	got := controller.Wait(t, "an SVID", issued)
	r := controller.Wait(t, "a request", c.Asked)

	if got.ID().String() != controller.ProxyID || got != s.Current() || s.Failure() != nil || got.Sequence() != 1 {
		t.Fatalf("got %s, current %v, failure %v", got, s.Current(), s.Failure())
	}
	if r.GetSaToken() != controller.Token || r.GetWireVersion() != 1 || got.ServerWireVersion() != 1 {
		t.Errorf("token %q, wire version %d, of the server %d", r.GetSaToken(), r.GetWireVersion(), got.ServerWireVersion())
	}
	csr, err := x509.ParseCertificateRequest(r.GetCsrDer())
	if err != nil {
		t.Fatal(err)
	}
	if len(csr.Subject.Names)+len(csr.DNSNames)+len(csr.URIs)+len(csr.Extensions) != 0 {
		t.Errorf("the certificate request asks for more than a key: %+v", csr.Subject)
	}
	own, err := s.ClientTLS(got).GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	if key, ok := own.PrivateKey.(*ecdsa.PrivateKey); !ok || !key.PublicKey.Equal(csr.PublicKey) {
		t.Error("the SVID's key is not the one that was proved")
	}
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || families[0].GetMetric()[0].GetGauge().GetValue() < 3500 {
		t.Errorf("metrics: %v, %v", families, err)
	}
}

func TestSourceNeverGivesTheTokenToAStranger(t *testing.T) {
	foreign := controller.NewCA(t)
	expired := func(c *controller.Controller) *tls.Certificate {
		cert := c.CA.Server(t, controller.ServerID)
		leaf := c.CA.Leaf(t, controller.ServerID, cert.Leaf.PublicKey, time.Now().Add(-time.Minute))
		return &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: cert.PrivateKey}
	}
	cases := map[string]func(*controller.Controller) *tls.Certificate{
		"a root that is not mounted": func(*controller.Controller) *tls.Certificate {
			return foreign.Server(t, controller.ServerID)
		},
		"another identity of our trust domain": func(c *controller.Controller) *tls.Certificate {
			return c.CA.Server(t, controller.ProxyID)
		},
		"the same path in another trust domain": func(c *controller.Controller) *tls.Certificate {
			return c.CA.Server(t, strings.Replace(controller.ServerID, controller.TrustDomain, "other.example", 1))
		},
		"an identity that only begins like the controller's": func(c *controller.Controller) *tls.Certificate {
			return c.CA.Server(t, controller.ServerID+"-2")
		},
		"an expired certificate": expired,
		"the CA itself":          func(c *controller.Controller) *tls.Certificate { return c.CA.Certificate() },
	}
	for name, present := range cases {
		t.Run(name, func(t *testing.T) {
			c := controller.New(t)
			c.Present(present(c))
			var out log
			s, _ := run(t, config(c, &out))
			err := failure(t, s, anything)
			if !errors.Is(err, dial.ErrHandshake) || !strings.Contains(err.Error(), strings.TrimPrefix(c.Bootstrap.Endpoint(), "https://")) {
				t.Errorf("got %v, want ErrHandshake with the endpoint", err)
			}
			if len(c.Asked) != 0 || s.Current() != nil {
				t.Error("the token was sent")
			}
		})
	}
}

// A listener without TLS, or with an older one, sees nothing but a ClientHello.
func TestSourceNeverSpeaksInTheClear(t *testing.T) {
	c := controller.New(t)
	lis, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan []byte, 16)
	go func() { // ends with the listener
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1<<16)
			n, _ := conn.Read(b)
			_, _ = conn.Write([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00")) // HTTP/2 SETTINGS
			m, _ := conn.Read(b[n:])
			seen <- b[:n+m]
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() { _ = lis.Close() })
	var out log
	cfg := config(c, &out)
	cfg.Endpoint = "https://" + lis.Addr().String()
	s, _ := run(t, cfg)
	b := controller.Wait(t, "a connection", seen)
	if len(b) == 0 || b[0] != 22 || bytes.Contains(b, []byte(controller.Token)) {
		t.Errorf("a server without TLS was told %q", b)
	}
	if err := failure(t, s, anything); !errors.Is(err, dial.ErrHandshake) {
		t.Errorf("got %v", err)
	}
}

func TestSourceAcceptsOnlyAnSVIDForItsOwnKeyAndDomain(t *testing.T) {
	other := controller.NewCA(t)
	type response = discoveryv1.BootstrapResponse
	cases := map[string]struct {
		spoil func(*controller.Controller, *discoveryv1.BootstrapRequest) *response
		want  error
	}{
		"no certificate": {func(*controller.Controller, *discoveryv1.BootstrapRequest) *response { return &response{} }, identity.ErrMalformed},
		"garbage": {func(*controller.Controller, *discoveryv1.BootstrapRequest) *response {
			return &response{SvidChainDer: [][]byte{[]byte("garbage")}}
		}, identity.ErrMalformed},
		"a certificate for another key": {func(c *controller.Controller, _ *discoveryv1.BootstrapRequest) *response {
			return &response{SvidChainDer: c.CA.Server(t, controller.ProxyID).Certificate}
		}, identity.ErrMalformed},
		"a foreign trust domain": {func(c *controller.Controller, r *discoveryv1.BootstrapRequest) *response {
			return c.Issue(c.CA, r, "spiffe://other.example/ns/a/sa/b", time.Hour)
		}, identity.ErrWrongDomain},
		"one that has expired": {func(c *controller.Controller, r *discoveryv1.BootstrapRequest) *response {
			return c.Issue(c.CA, r, controller.ProxyID, -time.Second)
		}, identity.ErrNotValidNow},
		"a chain whose links do not fit": {func(c *controller.Controller, r *discoveryv1.BootstrapRequest) *response {
			answer := c.Issue(c.CA, r, controller.ProxyID, time.Hour)
			answer.SvidChainDer = append(answer.SvidChainDer, other.Root.Raw)
			return answer
		}, identity.ErrMalformed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := controller.New(t)
			c.Answer(func(r *discoveryv1.BootstrapRequest) (*response, error) { return tc.spoil(c, r), nil })
			var out log
			s, _ := run(t, config(c, &out))
			if err := failure(t, s, anything); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if s.Current() != nil {
				t.Error("it is used")
			}
		})
	}
}

func TestSourceReadsTokenAndBundleAnewAndMakesAFreshKeyEachTime(t *testing.T) {
	c := controller.New(t)
	foreign := controller.NewCA(t)
	controller.WriteBundle(t, c.BundlePath(), foreign.Root)
	var out log
	s, issued := run(t, config(c, &out))
	failure(t, s, func(err error) bool { return errors.Is(err, dial.ErrHandshake) })

	controller.WriteBundle(t, c.BundlePath(), c.CA.Root)
	if err := os.Remove(c.TokenPath()); err != nil {
		t.Fatal(err)
	}
	failure(t, s, func(err error) bool { return errors.Is(err, os.ErrNotExist) })

	c.Answer(func(r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		if r.GetSaToken() == "first" {
			return nil, status.Error(codes.Unauthenticated, "not accepted")
		}
		return c.Issue(c.CA, r, controller.ProxyID, time.Hour), nil
	})
	write(t, c.TokenPath(), "first")
	failure(t, s, func(err error) bool { return status.Code(err) == codes.Unauthenticated })
	write(t, c.TokenPath(), "second")
	controller.Wait(t, "an SVID", issued)

	keys := map[string]bool{}
	attempts := len(c.Asked)
	for range attempts {
		r := <-c.Asked
		csr, err := x509.ParseCertificateRequest(r.GetCsrDer())
		if err != nil {
			t.Fatal(err)
		}
		keys[string(csr.RawSubjectPublicKeyInfo)] = true
	}
	if attempts < 2 || len(keys) != attempts {
		t.Errorf("%d attempts with %d keys", attempts, len(keys))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	tmp := filepath.Join(filepath.Dir(path), "new")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func TestSourceRenewsOnDemandAndBeforeHalfOfAShortLife(t *testing.T) {
	c := controller.New(t)
	c.Answer(func(r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return c.Issue(c.CA, r, controller.ProxyID, 3*time.Second), nil
	})
	var out log
	s, issued := run(t, config(c, &out))
	first := controller.Wait(t, "an SVID", issued)
	s.Renew()
	second := controller.Wait(t, "the SVID that was asked for", issued)
	third := controller.Wait(t, "the renewal", issued)
	if first.Serial() == second.Serial() || second.Serial() == third.Serial() || third.Sequence() != 3 {
		t.Errorf("got %s, %s, %s", first, second, third)
	}
}

func TestSourceTrustsPushedRootsBesideTheMounted(t *testing.T) {
	c := controller.New(t)
	coming := controller.NewCA(t)
	c.Present(coming.Server(t, controller.ServerID))
	var out log
	s, issued := run(t, config(c, &out))
	failure(t, s, anything)
	s.TrustToo(svid.NewBundle(coming.Root))
	controller.Wait(t, "an SVID", issued)
	mounted, pushed := s.Roots()
	if len(mounted) != 1 || len(pushed) != 1 || mounted[0] == pushed[0] || len(mounted[0]) != 64 {
		t.Errorf("mounted %v, pushed %v", mounted, pushed)
	}

	c.Present(c.CA.Server(t, controller.ServerID)) // the mounted ones go on to count
	s.Renew()
	controller.Wait(t, "an SVID", issued)
}

func TestSourceSeesTheMountedBundleChangeAndKeepsItWhenItBreaks(t *testing.T) {
	c := controller.New(t)
	var out log
	s, issued := run(t, config(c, &out))
	controller.Wait(t, "an SVID", issued)
	controller.WriteBundle(t, c.BundlePath(), c.CA.Root, controller.NewCA(t).Root)
	for {
		changed := s.Changed()
		if mounted, _ := s.Roots(); len(mounted) == 2 {
			break
		}
		controller.Wait(t, "change of roots", changed)
	}
	write(t, c.BundlePath(), "not PEM")
	s.Renew()
	controller.Wait(t, "an SVID", issued)
	if mounted, _ := s.Roots(); len(mounted) != 2 {
		t.Errorf("roots are %v", mounted)
	}
}

func TestNothingSecretIsPrinted(t *testing.T) {
	c := controller.New(t)
	c.Answer(func(r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return nil, status.Errorf(codes.Unauthenticated, "token %s is bad", r.GetSaToken())
	})
	var out log
	s, issued := run(t, config(c, &out))
	err := failure(t, s, anything)
	if status.Code(err) != codes.Unauthenticated || strings.Contains(err.Error(), controller.Token) {
		t.Errorf("failure is %v", err)
	}
	c.Answer(func(r *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
		return c.Issue(c.CA, r, controller.ProxyID, time.Hour), nil
	})
	got := controller.Wait(t, "an SVID", issued)
	encoded, err := json.Marshal(map[string]any{"svid": got})
	if err != nil {
		t.Fatal(err)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "svid", got)
	var texts []string
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x"} {
		texts = append(texts, fmt.Sprintf(verb, got), fmt.Sprintf(verb, struct{ S any }{got}))
	}
	own, err := s.ClientTLS(got).GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(own.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	secret := fmt.Sprintf("%x", key[len(key)-32:])
	for _, text := range append(texts, string(encoded), out.String()) {
		if strings.Contains(text, secret) || strings.Contains(text, controller.Token) || strings.Contains(text, "PrivateKey") || strings.Contains(text, "Curve") {
			t.Errorf("printed: %s", text)
		}
	}
	if !slices.Contains(texts, controller.ProxyID+" serial "+got.Serial()) {
		t.Errorf("got %v", texts)
	}
}

func TestTheSameTroubleIsToldOnceAndNamesTheEndpoint(t *testing.T) {
	c := controller.New(t)
	c.Bootstrap.Down()
	var out log
	s, issued := run(t, config(c, &out))
	first := failure(t, s, func(err error) bool { return errors.Is(err, dial.ErrUnreachable) })
	failure(t, s, func(err error) bool { return err != first }) //nolint:errorlint // another of its kind
	if n := strings.Count(out.String(), "level=WARN"); n != 1 || !strings.Contains(out.String(), strings.TrimPrefix(c.Bootstrap.Endpoint(), "https://")) {
		t.Errorf("%d warnings:\n%s", n, out.String())
	}
	c.Bootstrap.Up()
	controller.Wait(t, "an SVID", issued)
}

func TestNewRefusesHalfAConfiguration(t *testing.T) {
	c := controller.New(t)
	var out log
	cases := map[string]func(*identity.Config){
		"no endpoint":                func(c *identity.Config) { c.Endpoint = "" },
		"an endpoint in the clear":   func(c *identity.Config) { c.Endpoint = "http://localhost:1" },
		"an endpoint without a port": func(c *identity.Config) { c.Endpoint = "https://localhost" },
		"an endpoint with a path":    func(c *identity.Config) { c.Endpoint = "https://localhost:1/x" },
		"no token":                   func(c *identity.Config) { c.TokenPath = "" },
		"no bundle":                  func(c *identity.Config) { c.BundlePath = "" },
		"no trust domain":            func(c *identity.Config) { c.TrustDomain = spiffeid.TrustDomain{} },
		"no server":                  func(c *identity.Config) { c.ServerID = spiffeid.ID{} },
		"a server of another domain": func(c *identity.Config) { c.TrustDomain = spiffeid.RequireTrustDomainFromString("other.example") },
	}
	for name, spoil := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := config(c, &out)
			spoil(&cfg)
			if s, err := identity.New(cfg); err == nil {
				t.Errorf("accepted: %v", s)
			}
		})
	}
}
