// Package bootstrap is the server of the Bootstrap RPC: it exchanges a token for an
// SVID. It authenticates only itself, so everything a caller sends is a stranger's until
// the token has been attested. Who a token stands for, who may have an SVID, and the
// signing come in through interfaces; what was issued and what was refused goes out to the
// audit, the log, a metric and Events.
package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Attester tells who a token stands for.
type Attester interface {
	// Attest returns svid.ErrUnauthenticated for a token that proves nobody; any other
	// error says that it cannot be known now. No error quotes the token.
	Attest(ctx context.Context, token svid.Token) (svid.Workload, error)
}

// Recognizer is an Attester that knows its tokens without asking anybody, as one of a file
// does. Those who have such a token are limited each by themselves: on one machine all
// callers have one address, and a stranger there must not use up what is theirs.
type Recognizer interface {
	// Recognizes reports whether the token proves somebody, at the cost of a look-up.
	Recognizes(token svid.Token) bool
}

// Allower decides who may have an SVID.
type Allower interface {
	// Allow returns nil, or svid.ErrNotAllowed; any other error says that it cannot be
	// decided now.
	Allow(ctx context.Context, w svid.Workload) error
}

// Authority signs, and knows the roots to hand out with what it signed.
type Authority interface {
	// Sign returns svid.ErrUnusable while it cannot sign.
	Sign(ctx context.Context, req svid.Request) (svid.Issued, error)
	Roots() svid.Bundle
}

// Config is what a Server needs.
type Config struct {
	Attester    Attester              // required
	Allow       Allower               // required
	CA          Authority             // required
	TrustDomain spiffeid.TrustDomain  // required
	Limits      Limits                // zero: defaults
	Events      Events                // nil: none
	Calls       stats.Handler         // is told of requests; nil: none
	Now         func() time.Time      // default time.Now
	Log         *slog.Logger          // default: none
	Registerer  prometheus.Registerer // default: no metrics
}

// Server answers Bootstrap. Every other RPC is unimplemented here.
type Server struct {
	discoveryv1.UnimplementedDiscoveryServer

	cfg   Config
	limit *limiter
	audit *audit
}

// New returns a server that Serve opens to callers.
func New(cfg Config) (*Server, error) {
	if cfg.Attester == nil || cfg.Allow == nil || cfg.CA == nil || cfg.TrustDomain.IsZero() {
		return nil, errors.New("bootstrap server needs an attester, an allower, a CA and a trust domain")
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	a, err := newAudit(cfg.Log, cfg.Events, cfg.Registerer)
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, limit: newLimiter(cfg.Limits), audit: a}, nil
}

// Audit returns the last 512 issuances and the last 512 refusals and failures, oldest first.
func (s *Server) Audit() []Entry { return s.audit.entries() }

// Bootstrap implements the RPC.
func (s *Server) Bootstrap(ctx context.Context, req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Limits.RPC)
	defer cancel()
	c := callOf(ctx)
	c.handled = true
	resp, e, err := s.exchange(ctx, c.source, req)
	e.Time, e.Addr = s.cfg.Now(), c.addr
	s.audit.record(ctx, c.source, e)
	return resp, err
}

// exchange does the work, in the order of what it costs and of what it tells: a
// stranger learns nothing but that the token was not accepted.
func (s *Server) exchange(ctx context.Context, source string, req *discoveryv1.BootstrapRequest) (*discoveryv1.BootstrapResponse, Entry, error) {
	token := svid.TokenFromString(req.GetSaToken())
	if wait := s.wait(source, token); wait > 0 {
		return nil, Entry{Result: Refused, Reason: ReasonRateLimited}, retryAfter(wait)
	}
	w, err := s.cfg.Attester.Attest(ctx, token)
	if errors.Is(err, svid.ErrUnauthenticated) {
		return nil, refused(ReasonUnauthenticated, err), status.Error(codes.Unauthenticated, "not authenticated")
	} else if err != nil {
		return nil, failed(ReasonNoAttestation, err), status.Error(codes.Unavailable, "tokens cannot be reviewed now")
	}
	resp, e, err := s.issue(ctx, w, req.GetCsrDer())
	e.Pod, e.PodUID, e.Node = w.Pod.Name, w.Pod.UID, w.Pod.Node
	return resp, e, err
}

// wait takes one request of what its caller may have, and returns 0 or how long to wait.
// A stranger's tokens are worth no bucket: each could be another.
func (s *Server) wait(source string, token svid.Token) time.Duration {
	if r, ok := s.cfg.Attester.(Recognizer); ok && r.Recognizes(token) {
		return s.limit.waitAlone(fmt.Sprintf("token %x", token.Hash()), s.cfg.Now())
	}
	return s.limit.wait(source, s.cfg.Now())
}

// issue signs for a workload that is proved, if it may have an SVID.
func (s *Server) issue(ctx context.Context, w svid.Workload, csr []byte) (*discoveryv1.BootstrapResponse, Entry, error) {
	id, err := w.ID(s.cfg.TrustDomain)
	if err != nil { // an attester that attests what is no account
		return nil, failed(ReasonInternal, err), status.Error(codes.Internal, "internal error")
	}
	as := func(e Entry) Entry { e.Identity = id.String(); return e }
	if err := s.cfg.Allow.Allow(ctx, w); errors.Is(err, svid.ErrNotAllowed) {
		return nil, as(refused(ReasonNotAllowed, err)), status.Errorf(codes.PermissionDenied, "%s may not have an SVID", id)
	} else if err != nil {
		return nil, as(failed(ReasonNoDecision, err)), status.Error(codes.Unavailable, "rights cannot be decided now")
	}
	pub, err := svid.ParseCSR(csr)
	if errors.Is(err, svid.ErrWeakKey) {
		return nil, as(refused(ReasonWeakKey, err)), status.Error(codes.InvalidArgument, err.Error())
	} else if err != nil {
		return nil, as(refused(ReasonMalformedCSR, err)), status.Error(codes.InvalidArgument, svid.ErrCSR.Error())
	}
	out, err := s.cfg.CA.Sign(ctx, svid.Request{ID: id, Pod: w.Pod, PublicKey: pub})
	roots := s.cfg.CA.Roots()
	if errors.Is(err, svid.ErrUnusable) || ctx.Err() != nil || (err == nil && roots.IsZero()) {
		return nil, as(failed(ReasonCAUnusable, errors.Join(err, ctx.Err()))), status.Error(codes.Unavailable, "the CA cannot sign now")
	} else if err != nil {
		return nil, as(failed(ReasonInternal, err)), status.Error(codes.Internal, "internal error")
	}
	resp := &discoveryv1.BootstrapResponse{
		SvidChainDer: out.Chain, TrustBundleDer: roots.DER(),
		NotAfter: timestamppb.New(out.NotAfter), WireVersion: discovery.WireVersion,
	}
	return resp, as(Entry{Result: Issued, Serial: out.Serial, NotAfter: out.NotAfter, KeyID: out.KeyID}), nil
}

func refused(r Reason, err error) Entry {
	return Entry{Result: Refused, Reason: r, Error: err.Error()}
}

func failed(r Reason, err error) Entry {
	e := Entry{Result: Failed, Reason: r}
	if err != nil {
		e.Error = err.Error()
	}
	return e
}

// retryAfter is RESOURCE_EXHAUSTED with a google.rpc.RetryInfo.
func retryAfter(wait time.Duration) error {
	st := status.New(codes.ResourceExhausted, "too many requests")
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		st = with
	}
	return st.Err()
}

// call is what is known of a request before its message has been read.
type call struct {
	addr    string
	source  string
	handled bool // written by the handler, read when the RPC has ended
}

type callKey struct{}

func newCall(ctx context.Context) *call {
	var addr net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		addr = p.Addr
	}
	c := &call{source: sourceOf(addr)}
	if addr != nil {
		c.addr = addr.String()
	}
	return c
}

func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return newCall(ctx)
}
