package spire_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"aether.io/aether/internal/test/keypair"
)

const id = "spiffe://spire.test/ns/aether-system/sa/aether-controller"

// authority signs as SPIRE's server does.
type authority struct{ *keypair.Pair }

func newAuthority(t *testing.T) authority {
	t.Helper()
	return authority{keypair.New(t, &x509.Certificate{
		Subject: pkix.Name{Organization: []string{"SPIFFE"}}, URIs: []*url.URL{{Scheme: "spiffe", Host: "spire.test"}},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)}
}

// svid is an SVID with the DNS names, and the roots as the bundle.
func (a authority) svid(t *testing.T, serial int64, notAfter time.Time, roots []authority, names ...string) *workload.X509SVID {
	t.Helper()
	uri, err := url.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	leaf := keypair.New(t, &x509.Certificate{
		SerialNumber: big.NewInt(serial), URIs: []*url.URL{uri}, DNSNames: names, NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Pair)
	var bundle []byte
	for _, r := range roots {
		bundle = append(bundle, r.Cert.Raw...)
	}
	return &workload.X509SVID{SpiffeId: id, X509Svid: leaf.Cert.Raw, X509SvidKey: leaf.KeyDER(t), Bundle: bundle}
}

// agent is SPIRE's, as far as X.509 SVIDs go: each answer that it is given is sent to whom is
// there. An error ends the call.
type agent struct {
	workload.UnimplementedSpiffeWorkloadAPIServer
	answers chan any // *workload.X509SVIDResponse or error
}

// FetchX509SVID implements workload.SpiffeWorkloadAPIServer.
func (a *agent) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if v := md.Get("workload.spiffe.io"); len(v) != 1 || v[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	for {
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case answer := <-a.answers:
			switch answer := answer.(type) {
			case error:
				return answer
			case *workload.X509SVIDResponse:
				if err := stream.Send(answer); err != nil {
					return err
				}
			}
		}
	}
}

// give has the agent answer with SVIDs.
func (a *agent) give(svids ...*workload.X509SVID) {
	a.answers <- &workload.X509SVIDResponse{Svids: svids}
}

// startAgent listens at the socket until the test or the function ends it.
func startAgent(t *testing.T, socket string) (a *agent, stop func()) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	a = &agent{answers: make(chan any)}
	s := grpc.NewServer()
	workload.RegisterSpiffeWorkloadAPIServer(s, a)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop = func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	return a, stop
}

// socketPath is a path short enough for a socket.
func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "w") //nolint:usetesting // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "agent.sock")
}
