// Package dial connects to the controller's listeners and remembers why it could not:
// gRPC flattens every cause into text, while its callers must tell a network that is
// down from a server that is not the controller and from a controller that does not
// accept the client's certificate. It decides nothing about trust: that is in the TLS
// configuration that it is given.
package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// Why a connection did not come about or ended.
var (
	ErrUnreachable = errors.New("cannot be reached")
	ErrHandshake   = errors.New("TLS handshake did not succeed")
	ErrRefused     = errors.New("the controller refused the TLS connection")
	errNoTLS       = errors.New("a TLS configuration is required")
	errOldTLS      = errors.New("the least version of TLS must be 1.3")
)

const (
	// connectTimeout bounds the TCP and TLS handshakes of one attempt.
	connectTimeout = 10 * time.Second
	// KeepaliveTime is how long a connection may be silent before the client asks
	// whether the other side is there. Servers must permit it.
	KeepaliveTime    = 30 * time.Second
	keepaliveTimeout = 10 * time.Second
	alertWait        = 200 * time.Millisecond // for the alert of a peer that has closed the connection
	// maxReceive bounds one message from the controller: chunks are at most 1 MiB,
	// and what wraps them is small.
	maxReceive = 4 << 20
)

// Endpoint is the address of one of the controller's listeners: "https://host:port".
type Endpoint struct{ hostPort string }

// ParseEndpoint reads "https://host:port"; nothing may follow.
func ParseEndpoint(s string) (Endpoint, error) {
	u, err := url.Parse(s)
	if err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q: want https://host:port", s)
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	if err != nil || port == 0 || u.Scheme != "https" || u.Hostname() == "" || u.User != nil ||
		(u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
		return Endpoint{}, fmt.Errorf("endpoint %q: want https://host:port", s)
	}
	return Endpoint{hostPort: u.Host}, nil
}

// String is host:port.
func (e Endpoint) String() string { return e.hostPort }

// Conn is one connection to an endpoint and what became of it.
type Conn struct {
	*grpc.ClientConn
	endpoint Endpoint
	cause    *cause
}

// New prepares a connection; the first RPC makes it. config must ask for TLS 1.3. What its RPCs do
// is told to calls, unless that is nil.
func New(e Endpoint, config *tls.Config, calls stats.Handler) (*Conn, error) {
	switch {
	case config == nil:
		return nil, errNoTLS
	case config.MinVersion != tls.VersionTLS13:
		return nil, errOldTLS
	}
	why := &cause{}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(&watchedTLS{TransportCredentials: credentials.NewTLS(config), why: why}),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
			if err != nil {
				why.set(fmt.Errorf("%w: %w", ErrUnreachable, err))
			}
			return conn, err
		}),
		// An RPC fails with its first connection attempt: the callers own the back-off.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           grpcbackoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour},
			MinConnectTimeout: connectTimeout,
		}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithIdleTimeout(0),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: KeepaliveTime, Timeout: keepaliveTimeout}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	}
	if calls != nil {
		options = append(options, grpc.WithStatsHandler(calls))
	}
	conn, err := grpc.NewClient("passthrough:///"+e.hostPort, options...)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", e, err)
	}
	return &Conn{ClientConn: conn, endpoint: e, cause: why}, nil
}

// Explain adds to the error of an RPC the endpoint and, where the connection is to
// blame, the cause; errors.Is finds the sentinels of this package in it and
// status.FromError the RPC's status.
func (c *Conn) Explain(err error) error {
	if err == nil {
		return nil
	}
	if why := c.cause.get(); why != nil {
		return &explained{text: fmt.Sprintf("%s: %s", c.endpoint, why), both: []error{err, why}}
	}
	return fmt.Errorf("%s: %w", c.endpoint, err)
}

// explained keeps the RPC's status reachable but says only the cause: gRPC's own text
// repeats it with addresses and nesting that differ from try to try.
type explained struct {
	text string
	both []error
}

func (e *explained) Error() string   { return e.text }
func (e *explained) Unwrap() []error { return e.both }

// cause is the newest reason for which a connection failed.
type cause struct {
	mu  sync.Mutex // guards err
	err error
}

func (c *cause) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cause) get() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// watchedTLS is TLS that records what went wrong.
type watchedTLS struct {
	credentials.TransportCredentials
	why *cause
}

func (t *watchedTLS) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := t.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		t.why.set(classify(err, ErrHandshake))
		return nil, nil, err
	}
	return &watchedConn{Conn: conn, why: t.why}, info, nil
}

func (t *watchedTLS) Clone() credentials.TransportCredentials {
	return &watchedTLS{TransportCredentials: t.TransportCredentials.Clone(), why: t.why}
}

// watchedConn sees the alert with which a TLS 1.3 server refuses a client certificate:
// it comes after the client's side of the handshake is over.
type watchedConn struct {
	net.Conn
	why *cause
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && isAlert(err) {
		c.why.set(classify(err, ErrRefused))
	}
	return n, err
}

// Write looks, where it fails, for an alert that has arrived: a refused client may find
// the connection closed under its first words before it has read why.
func (c *watchedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.SetReadDeadline(time.Now().Add(alertWait)) // a dead connection's reads end by themselves
		_, _ = c.Read(make([]byte, 1))                   // what it says is for the cause
	}
	return n, err
}

func classify(err, otherwise error) error {
	if isAlert(err) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return fmt.Errorf("%w: %w", otherwise, err)
}

// isAlert reports whether the peer ended TLS by an alert; crypto/tls marks that by the operation.
func isAlert(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error"
}

// Kind says in a few stable words what an RPC's error is about, so that one trouble is
// told once however its text varies: the cause if the connection is to blame, else the
// status code, else the error itself.
func Kind(err error) string {
	for _, cause := range []error{ErrUnreachable, ErrHandshake, ErrRefused} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	if st, ok := status.FromError(err); ok {
		return st.Code().String()
	}
	return err.Error()
}
