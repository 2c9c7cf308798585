package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/connlimit"
	"aether.io/aether/internal/discovery/listen"
)

const (
	// Of connections: a pod needs one, for a moment. One costs some 50 KiB.
	maxConnections = 2048
	maxOfAddress   = 128
	maxRequest     = 64 << 10        // bytes of one message
	maxHeaders     = 8 << 10         // bytes of one header list
	maxStreams     = 4               // at once on one connection
	stopWithin     = 3 * time.Second // for requests in flight when we stop
)

// ErrInsecure is returned for a listener that would accept less than TLS 1.3.
var ErrInsecure = errors.New("bootstrap listener without TLS 1.3")

// Serve answers callers of lis until ctx is done, then returns nil; it closes lis. Each
// connection handshakes in a goroutine of its own, under the deadline Limits.Handshake.
func (s *Server) Serve(ctx context.Context, lis net.Listener, conf *tls.Config) error {
	if conf == nil || conf.MinVersion < tls.VersionTLS13 {
		_ = lis.Close()
		return ErrInsecure
	}
	options := []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(conf)),
		grpc.ConnectionTimeout(s.cfg.Limits.Handshake),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams),
		// A caller has one request. What stays is ended by age, also while it keeps a request
		// unfinished: no handler runs, and no deadline, before the message has arrived.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: s.cfg.Limits.Connection, MaxConnectionAge: s.cfg.Limits.Connection, MaxConnectionAgeGrace: s.cfg.Limits.RPC,
		}),
		grpc.StatsHandler(unhandled{s}),
	}
	if s.cfg.Calls != nil {
		options = append(options, grpc.StatsHandler(s.cfg.Calls))
	}
	g := grpc.NewServer(options...)
	desc := discoveryv1.Discovery_ServiceDesc
	desc.Streams = nil // so that Stream does not exist here
	g.RegisterService(&desc, s)

	return listen.Serve(ctx, g, connlimit.New(lis, maxConnections, maxOfAddress), stopWithin)
}

// unhandled audits requests that gRPC itself refuses, before our handler has seen them.
type unhandled struct{ s *Server }

// TagRPC implements stats.Handler.
func (unhandled) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, newCall(ctx))
}

// HandleRPC implements stats.Handler.
func (u unhandled) HandleRPC(ctx context.Context, st stats.RPCStats) {
	end, ok := st.(*stats.End)
	c := callOf(ctx)
	if !ok || c.handled || end.Error == nil {
		return
	}
	e := Entry{Time: u.s.cfg.Now(), Result: Refused, Addr: c.addr}
	switch status.Code(end.Error) {
	case codes.ResourceExhausted:
		e.Reason = ReasonTooLarge
	case codes.Internal:
		e.Reason = ReasonMalformed
	default:
		return // went away, or called what does not exist
	}
	u.s.audit.record(ctx, c.source, e)
}

// TagConn implements stats.Handler.
func (unhandled) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements stats.Handler.
func (unhandled) HandleConn(context.Context, stats.ConnStats) {}
