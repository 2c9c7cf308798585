package telemetry

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// retryConfig is what the three exporters' are converted from.
type retryConfig struct {
	Enabled         bool
	InitialInterval time.Duration
	MaxInterval     time.Duration
	MaxElapsedTime  time.Duration
}

// retry is within one export.
func (t *Telemetry) retry() retryConfig {
	return retryConfig{Enabled: true, InitialInterval: t.c.Timeout / 10, MaxInterval: t.c.Timeout / 2, MaxElapsedTime: t.c.Timeout}
}

const (
	connectTimeout = 5 * time.Second
	maxBackoff     = 10 * time.Second
	// Without a keepalive a peer that is gone without a word would be found after a quarter of an
	// hour; with one, the kernel ends a connection on which nothing is acknowledged for silent.
	// Pings themselves are seldom: servers end connections of clients that send them more often.
	keepaliveTime = 5 * time.Minute
	silent        = 20 * time.Second
)

var errNoAuthorities = errors.New("the authorities of the collector are not known yet")

// Authorities are whose signature the collector's certificate must have. They are asked in each
// handshake, by any goroutine; an error says why they are not known now.
type Authorities func() (*x509.CertPool, error)

// trust is a set of authorities that is told later.
type trust struct{ is atomic.Pointer[Authorities] }

// TrustTo says where the authorities are asked for from now on, if Config.Trust. Before, nothing is sent.
func (t *Telemetry) TrustTo(a Authorities) { t.trust.is.Store(&a) }

func (t *trust) pool() (*x509.CertPool, error) {
	ask := t.is.Load()
	if ask == nil {
		return nil, errNoAuthorities
	}
	return (*ask)()
}

func (t *Telemetry) dial() (*grpc.ClientConn, error) {
	as, err := t.credentials()
	if err != nil {
		return nil, err
	}
	return grpc.NewClient("dns:///"+t.c.Endpoint,
		grpc.WithTransportCredentials(as),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxBackoff},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime, Timeout: silent}),
		grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithNoProxy(), grpc.WithUserAgent(t.c.Service+"/"+cmp.Or(t.c.Version, "0")),
	)
}

// credentials are plaintext only where that was asked for: a collector that cannot be verified gets nothing.
func (t *Telemetry) credentials() (credentials.TransportCredentials, error) {
	if !t.c.TLS {
		return insecure.NewCredentials(), nil
	}
	host, _, err := net.SplitHostPort(t.c.Endpoint)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(t.c.ServerName, host)}
	if !t.c.Trust {
		return credentials.NewTLS(config), nil
	}
	return &trusting{TransportCredentials: credentials.NewTLS(config), config: config, trust: t.trust}, nil
}

// trusting is TLS whose authorities are asked for in each handshake, so that a change of them
// needs no restart.
type trusting struct {
	credentials.TransportCredentials
	config *tls.Config
	trust  *trust
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *trusting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	pool, err := c.trust.pool()
	if err != nil {
		return nil, nil, fmt.Errorf("verify the collector: %w", err)
	}
	config := c.config.Clone()
	config.RootCAs = pool
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c *trusting) Clone() credentials.TransportCredentials {
	return &trusting{TransportCredentials: c.TransportCredentials.Clone(), config: c.config, trust: c.trust}
}
