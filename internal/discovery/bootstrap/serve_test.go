package bootstrap_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/spiffeid"
)

func dialTCP(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// stalled are connections whose peers never go on, each at another point.
func stalled(t testing.TB, r *rig) map[string]net.Conn {
	t.Helper()
	silent, half := dialTCP(t, r.addr), dialTCP(t, r.addr)
	if _, err := half.Write([]byte{0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc}); err != nil { // a ClientHello begins
		t.Fatal(err)
	}
	conf := clientTLS(t, r.ca)
	conf.NextProtos = []string{"h2"}
	noPreface := tls.Client(dialTCP(t, r.addr), conf)
	if err := noPreface.Handshake(); err != nil {
		t.Fatal(err)
	}
	return map[string]net.Conn{"silent": silent, "half a hello": half, "TLS and then nothing": noPreface}
}

func TestStalledHandshakesHoldUpNobody(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	for range 50 {
		dialTCP(t, r.addr)
	}
	stalled(t, r)
	if _, err := r.dial().Bootstrap(soon(t), request(t, e.Token)); err != nil {
		t.Errorf("beside stalled handshakes: %v", err)
	}
}

func TestStalledHandshakesAreCut(t *testing.T) {
	r := newRig(t, func(c *bootstrap.Config) { c.Limits.Handshake = 100 * time.Millisecond })
	for name, conn := range stalled(t, r) {
		// A server that gives up closes; one that waits lets our own minute pass.
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Errorf("%s: still open", name)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// A caller that begins a request and never ends it is no handler's, so no deadline of an RPC finds it.
func TestAnUnfinishedRequestIsCut(t *testing.T) {
	r := newRig(t, func(c *bootstrap.Config) {
		c.Limits.Connection, c.Limits.RPC = 100*time.Millisecond, 100*time.Millisecond
	})
	conn := r.conn(clientTLS(t, r.ca))
	desc := &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}
	stream, err := conn.NewStream(soon(t), desc, discoveryv1.Discovery_Bootstrap_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	err = stream.RecvMsg(&discoveryv1.BootstrapResponse{})
	wantCode(t, err, codes.Unavailable)
}

func TestStoppingWaitsForNoStranger(t *testing.T) {
	r := newRig(t, func(c *bootstrap.Config) { c.Limits.Handshake = time.Hour })
	conns := stalled(t, r)
	r.stop() // returns, or the test's own time limit ends it
	for name, conn := range conns {
		if _, err := io.Copy(io.Discard, conn); isTimeout(err) {
			t.Errorf("%s: still open", name)
		}
	}
	if _, err := net.DialTimeout("tcp", r.addr, time.Second); err == nil {
		t.Error("the listener is still open")
	}
}

func TestAPlaintextClientGetsNothing(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	conn, err := grpc.NewClient("passthrough:///"+r.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = discoveryv1.NewDiscoveryClient(conn).Bootstrap(soon(t), request(t, e.Token))
	wantCode(t, err, codes.Unavailable)
	for _, hello := range []string{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
		raw := dialTCP(t, r.addr)
		if _, err := io.WriteString(raw, hello); err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(raw)
		// crypto/tls tells an HTTP client so; to the rest it sends at most an alert.
		if len(answer) > 7 && !strings.HasPrefix(string(answer), "HTTP/1.0 400") {
			t.Errorf("%q was answered with %q", hello, answer)
		}
	}
	if n := len(r.server.Audit()); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}

func TestClientsThatMustNotConnect(t *testing.T) {
	e := proxy()
	r := newRig(t, nil, e)
	otherRoot := newCA(t)
	old := clientTLS(t, r.ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	other, err := spiffeid.ForServiceAccount(domain(t), release, "other")
	if err != nil {
		t.Fatal(err)
	}
	otherID := tlsconfig.TLSClientConfig(x509bundle.FromX509Authorities(domain(t), r.ca.Roots().Certificates()), tlsconfig.AuthorizeID(other))
	for name, conf := range map[string]*tls.Config{
		"TLS 1.2":                       old,
		"one that trusts another root":  clientTLS(t, otherRoot),
		"one that wants another server": otherID,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := discoveryv1.NewDiscoveryClient(r.conn(conf)).Bootstrap(soon(t), request(t, e.Token))
			wantCode(t, err, codes.Unavailable)
		})
	}
	h1 := clientTLS(t, r.ca)
	h1.NextProtos = []string{"http/1.1"}
	conn := tls.Client(dialTCP(t, r.addr), h1)
	_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, _ := io.ReadAll(conn); len(answer) > 0 {
		t.Errorf("HTTP/1.1 was answered with %q", answer)
	}
	if n := len(r.server.Audit()); n != 0 {
		t.Errorf("%d requests came through", n)
	}
}

func TestServeRefusesWeakTLS(t *testing.T) {
	r := newRig(t, nil)
	weak := r.ca.ServerTLS(controller(t))
	weak.MinVersion = tls.VersionTLS12
	for name, conf := range map[string]*tls.Config{"no TLS": nil, "TLS 1.2": weak, "no minimum": {}} {
		t.Run(name, func(t *testing.T) {
			lis, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			if err := r.server.Serve(t.Context(), lis, conf); !errors.Is(err, bootstrap.ErrInsecure) {
				t.Errorf("got %v, want ErrInsecure", err)
			}
			if _, err := lis.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener is left open: %v", err)
			}
		})
	}
}
