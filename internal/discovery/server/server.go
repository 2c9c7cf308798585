// Package server is the controller's end of the discovery stream: it proves who
// subscribes, checks that they may, and carries a subscription's snapshots out and its
// answers back. It keeps no configuration and decides nothing about it; snapshots enter
// from a Subscription and leave in chunks, answers and reports go the other way.
//
// A stream is three goroutines: the handler, which decides when the stream ends, one
// that receives for it, and one that sends. Only the last can be held up by a slow
// client, and then holds one chunk; whatever ends a stream does not wait for it.
package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
)

// Subscription is one stream's view of its scope, as the world gives it. All methods
// may be called concurrently, Next by one goroutine. Errors are those of package snapshot.
type Subscription interface {
	// Next returns what is to be sent now, or a channel that receives when it is worth
	// asking again. ErrUnknownVersion says that the client's inventory is to be asked for.
	Next() (snap snapshot.Snapshot, wait <-chan struct{}, err error)
	Inventory(refs []snapshot.Ref) error
	Answer(a snapshot.Answer) error
	Report(ports []uint32, status fleet.Status)
	Close()
}

// Authorizer says who may subscribe to what, now. Its error is for the log; the client
// learns nothing of it. Rule is one.
type Authorizer interface {
	Authorize(p fleet.Peer, s scope.Scope) error
}

// Config configures a Server. TrustDomain, Subscribe and Authorizer are required.
type Config struct {
	TrustDomain spiffeid.TrustDomain
	Authorizer  Authorizer
	// Subscribe opens a subscription. While the world is not ready for it, it waits
	// until ctx ends, and returns then snapshot.ErrNotSynced or snapshot.ErrBehind. It
	// calls superseded, which does not block, when a newer stream of the pod takes over.
	Subscribe func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (Subscription, error)
	Proxies   func() []fleet.Proxy // for the count of laggards; nil: not counted
	Calls     stats.Handler        // is told of streams; nil: none
	Tracer    trace.Tracer         // of what is sent until it is answered; nil: none

	Handshake        time.Duration // for TCP accept to HTTP/2 preface; 0: 10 s
	FirstMessage     time.Duration // for Subscribe to arrive; 0: 10 s
	SubscribeWait    time.Duration // for the world to be ready; 0: 3 s
	MaxConnectionAge time.Duration // ±10 %, after which a client is asked to go elsewhere; 0: 30 min
	GoodbyeGrace     time.Duration // from that to the end of the stream; 0: 15 s
	MaxStreams       int           // at once; 0: 10000

	Now        func() time.Time // judges certificates; nil: time.Now
	Log        *slog.Logger     // nil: discard
	Registerer prometheus.Registerer
}

// Server serves streams. It implements discoveryv1.DiscoveryServer; Bootstrap is
// unimplemented here.
type Server struct {
	discoveryv1.UnimplementedDiscoveryServer

	cfg     Config
	metrics *metrics
	recheck chan struct{} // room for one; Recheck sends, Serve receives

	mu       sync.Mutex // guards what follows
	streams  map[*stream]struct{}
	stopping bool
}

// New checks the configuration and registers metrics. Serve does the work.
func New(cfg Config) (*Server, error) {
	switch {
	case cfg.TrustDomain.IsZero():
		return nil, errors.New("discovery server: a trust domain is required")
	case cfg.Authorizer == nil:
		return nil, errors.New("discovery server: an authorizer is required")
	case cfg.Subscribe == nil:
		return nil, errors.New("discovery server: a world to subscribe to is required")
	}
	orDefault(&cfg.Handshake, 10*time.Second)
	orDefault(&cfg.FirstMessage, 10*time.Second)
	orDefault(&cfg.SubscribeWait, 3*time.Second)
	orDefault(&cfg.MaxConnectionAge, 30*time.Minute)
	orDefault(&cfg.GoodbyeGrace, 15*time.Second)
	if cfg.MaxStreams <= 0 {
		cfg.MaxStreams = 10_000
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Tracer == nil {
		cfg.Tracer = noop.NewTracerProvider().Tracer("")
	}
	s := &Server{cfg: cfg, recheck: make(chan struct{}, 1), streams: make(map[*stream]struct{})}
	s.metrics = newMetrics(cfg.Proxies)
	if cfg.Registerer != nil {
		if err := s.metrics.register(cfg.Registerer); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func orDefault(d *time.Duration, value time.Duration) {
	if *d <= 0 {
		*d = value
	}
}

// Stream implements discoveryv1.DiscoveryServer.
func (s *Server) Stream(rpc grpc.BidiStreamingServer[discoveryv1.ClientMessage, discoveryv1.ServerMessage]) error {
	began := s.cfg.Now()
	st := newStream(s, rpc)
	err := st.serve(rpc.Context())
	code := statusOf(err)
	s.metrics.streams.WithLabelValues(code.Code().String()).Inc()
	s.cfg.Log.Log(rpc.Context(), levelOf(err), "stream ended",
		logkey.Addr, st.peer.Addr, logkey.Identity, st.peer.Identity, logkey.NodeID, st.peer.ID, logkey.Scope, st.scope.String(),
		logkey.Duration, s.cfg.Now().Sub(began), logkey.Code, code.Code().String(), logkey.Error, err)
	return code.Err()
}

// Recheck has every stream's authorization checked again, soon. It is to be called
// after anything that the Authorizer's answers depend on has changed. It does not block.
func (s *Server) Recheck() {
	select {
	case s.recheck <- struct{}{}:
	default:
	}
}

// rechecks ends every stream that may not be any more, whenever asked to, until ctx ends.
func (s *Server) rechecks(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.recheck:
		}
		for _, st := range s.all() {
			if err := st.authorize(); err != nil {
				st.end(err)
			}
		}
	}
}

// Renew asks every client for a new SVID and returns how many were asked.
func (s *Server) Renew(reason string) int {
	n := 0
	m := &discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Renew{Renew: &discoveryv1.Renew{Reason: reason}}}
	for _, st := range s.all() {
		if st.tell(notice{message: m}) {
			n++
		}
	}
	return n
}

// enter takes a stream in; from here on Recheck and stop reach it.
func (s *Server) enter(st *stream) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopping:
		return errStopping
	case len(s.streams) >= s.cfg.MaxStreams:
		return errBusy
	}
	s.streams[st] = struct{}{}
	return nil
}

func (s *Server) leave(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.streams, st)
}

func (s *Server) all() []*stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.streams))
}

// stop says goodbye to every client, and ends the streams of those that do not listen.
func (s *Server) stop() {
	s.mu.Lock()
	s.stopping = true
	s.mu.Unlock()
	for _, st := range s.all() {
		if !st.tell(notice{message: goodbye("the controller is stopping"), then: errStopping}) {
			st.end(errStopping)
		}
	}
}

func goodbye(reason string) *discoveryv1.ServerMessage {
	return &discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Goodbye{Goodbye: &discoveryv1.Goodbye{Reason: reason}}}
}
