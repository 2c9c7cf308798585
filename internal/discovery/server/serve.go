package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/connlimit"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/listen"
)

const (
	// Of connections: a proxy needs one, and a second while it changes. Those that have not shown
	// a certificate are closed when the handshake's deadline has passed.
	maxConnections = 20000
	maxOfAddress   = 1024
	maxHeaders     = 8 << 10          // bytes of one header list
	maxPerConn     = 4                // streams at once on one connection; a client needs one
	maxIdle        = time.Minute      // of a connection without a stream
	keepaliveTime  = 30 * time.Second // of silence, after which we ask whether the client is there
	keepaliveReply = 10 * time.Second
	minKeepalive   = 10 * time.Second // between a client's own questions
	stopWithin     = 3 * time.Second
)

// ErrInsecure is returned for a TLS configuration that would let anyone in: less than
// TLS 1.3, not demanding and verifying client certificates against roots of its own, or
// resuming sessions, which would outlive the certificates that they were made with.
var ErrInsecure = errors.New("stream listener without mutual TLS 1.3")

// Serve answers the streams of lis until ctx is done, then says goodbye and returns
// nil; it closes lis. Each connection handshakes in a goroutine of its own, under a
// deadline. conf, and whatever its GetConfigForClient gives, must be such that it is
// not ErrInsecure. Serve may be called once.
func (s *Server) Serve(ctx context.Context, lis net.Listener, conf *tls.Config) error {
	conf, err := demanding(conf)
	if err != nil {
		_ = lis.Close()
		return err
	}
	options := []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(conf)),
		grpc.ConnectionTimeout(s.cfg.Handshake),
		grpc.MaxRecvMsgSize(discovery.MaxMessage),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxPerConn),
		// The age makes a client that is asked to go elsewhere take a new connection
		// for it. It ends no stream: those end by an age of their own.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: keepaliveTime, Timeout: keepaliveReply, MaxConnectionIdle: maxIdle, MaxConnectionAge: s.cfg.MaxConnectionAge,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minKeepalive, PermitWithoutStream: true}),
	}
	if s.cfg.Calls != nil {
		options = append(options, grpc.StatsHandler(s.cfg.Calls))
	}
	g := grpc.NewServer(options...)
	desc := discoveryv1.Discovery_ServiceDesc
	desc.Methods = nil // so that Bootstrap does not exist here
	g.RegisterService(&desc, s)

	inner, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { s.rechecks(inner) })
	running.Go(func() {
		<-inner.Done()
		s.stop()
	})
	err = listen.Serve(ctx, g, connlimit.New(lis, maxConnections, maxOfAddress), stopWithin)
	cancel()
	running.Wait()
	return err
}

// demanding returns conf such that every handshake demands a client certificate.
func demanding(conf *tls.Config) (*tls.Config, error) {
	if !demands(conf) {
		return nil, ErrInsecure
	}
	conf = conf.Clone()
	pick := conf.GetConfigForClient
	if pick == nil {
		return conf, nil
	}
	conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		c, err := pick(hello)
		if err == nil && c != nil && !demands(c) {
			return nil, ErrInsecure
		}
		return c, err
	}
	return conf, nil
}

// demands wants roots that are set: without, crypto/tls takes those of the machine.
func demands(c *tls.Config) bool {
	return c != nil && c.MinVersion >= tls.VersionTLS13 && c.ClientAuth == tls.RequireAndVerifyClientCert &&
		c.ClientCAs != nil && c.SessionTicketsDisabled && !c.InsecureSkipVerify
}
