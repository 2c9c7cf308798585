package identity

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffetls/tlsconfig"
	"github.com/spiffe/go-spiffe/v2/svid/x509svid"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/svid"
)

var errNoToken = errors.New("the token file is empty")

// issue makes one attempt: a fresh key, one connection, one Bootstrap, one verified SVID.
func (s *Source) issue(ctx context.Context) (*SVID, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	token, err := readToken(s.cfg.TokenPath)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, fmt.Errorf("make certificate request: %w", err)
	}
	answer, err := s.ask(ctx, token, csr)
	if err != nil {
		return nil, err
	}
	return s.accept(answer, key)
}

// ask connects and makes the call.
func (s *Source) ask(ctx context.Context, token svid.Token, csr []byte) (*discoveryv1.BootstrapResponse, error) {
	config := tlsconfig.TLSClientConfig(s.trust, tlsconfig.AuthorizeID(s.cfg.ServerID))
	config.MinVersion = tls.VersionTLS13
	conn, err := dial.New(s.endpoint, config, s.cfg.Calls)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }() // there is nothing to lose in it
	answer, err := discoveryv1.NewDiscoveryClient(conn).Bootstrap(ctx, &discoveryv1.BootstrapRequest{
		SaToken:     token.Reveal(),
		CsrDer:      csr,
		WireVersion: s.cfg.WireVersion,
	})
	if err != nil {
		return nil, fmt.Errorf("bootstrap: %w", withoutToken(conn.Explain(err), token))
	}
	return answer, nil
}

// accept turns an answer into an SVID if it is one for key.
func (s *Source) accept(answer *discoveryv1.BootstrapResponse, key *ecdsa.PrivateKey) (*SVID, error) {
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	got, err := x509svid.ParseRaw(bytes.Join(answer.GetSvidChainDer(), nil), pkcs8)
	if err != nil {
		return nil, fmt.Errorf("accept SVID: %w: %w", ErrMalformed, err)
	}
	if err := verify(got, s.cfg.TrustDomain, s.cfg.Now()); err != nil {
		return nil, fmt.Errorf("accept SVID: %w", err)
	}
	return &SVID{svid: got, wire: answer.GetWireVersion()}, nil
}

func readToken(path string) (svid.Token, error) {
	text, err := readBounded(path)
	if err != nil {
		return svid.Token{}, fmt.Errorf("read token: %w", err)
	}
	token := svid.TokenFromString(strings.TrimSpace(string(text)))
	if token.IsZero() {
		return svid.Token{}, fmt.Errorf("read token: %w", errNoToken)
	}
	return token, nil
}

// withoutToken keeps a server that repeats the token in its error from having it logged.
func withoutToken(err error, token svid.Token) error {
	if !strings.Contains(err.Error(), token.Reveal()) {
		return err
	}
	return status.Error(status.Code(err), "the controller's error text repeats the token and is not shown")
}
