package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/proto"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// stream is one RPC. Its fields are set by the handler before the sender starts.
type stream struct {
	s     *Server
	rpc   grpc.BidiStreamingServer[discoveryv1.ClientMessage, discoveryv1.ServerMessage]
	peer  fleet.Peer
	scope scope.Scope
	sub   Subscription

	cancel  context.CancelCauseFunc // ends the stream with a cause; set before enter
	notices chan notice             // tell sends without blocking, the sender receives; room for 4

	inventory discovery.InventoryAssembler // the handler's
	asked     atomic.Bool                  // the inventory was asked for and has not arrived
	sent      atomic.Pointer[departure]    // the newest snapshot that left whole
}

// notice is a message beside the snapshots, and what ends the stream once it is sent.
type notice struct {
	message *discoveryv1.ServerMessage
	then    error
}

type departure struct {
	nonce uint64
	at    time.Time
	span  trace.Span // until it is answered
}

// received is what Recv returned.
type received struct {
	message *discoveryv1.ClientMessage
	err     error
}

func newStream(s *Server, rpc grpc.BidiStreamingServer[discoveryv1.ClientMessage, discoveryv1.ServerMessage]) *stream {
	return &stream{s: s, rpc: rpc, notices: make(chan notice, 4)}
}

// serve is the stream from its beginning to its end, and returns why it ended: nil if
// the client ended it.
func (st *stream) serve(ctx context.Context) error {
	ctx, st.cancel = context.WithCancelCause(ctx)
	defer st.cancel(errOver)
	if err := st.identify(ctx); err != nil {
		return err
	}
	in := make(chan received)
	go st.receive(ctx, in)
	m, err := st.first(ctx, in)
	if err != nil {
		return err
	}
	if err := st.admit(m); err != nil {
		return err
	}
	// Entered before it is authorized, so that no change of rights falls in between.
	if err := st.s.enter(st); err != nil {
		return err
	}
	defer st.s.leave(st)
	if err := st.authorize(); err != nil {
		return err
	}
	if err := st.subscribe(ctx, m); err != nil {
		return err
	}
	defer st.sub.Close()
	defer st.s.metrics.connected(st.scope)()
	defer st.giveUp()
	st.s.cfg.Log.InfoContext(ctx, "stream opened", logkey.Addr, st.peer.Addr, logkey.Identity, st.peer.Identity, logkey.NodeID, st.peer.ID,
		logkey.Scope, st.scope.String(), logkey.Serial, st.peer.Serial, logkey.Version, m.GetHaveVersion())
	defer st.schedule()()
	return st.run(ctx, in)
}

// identify learns the peer from its verified certificate.
func (st *stream) identify(ctx context.Context) error {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return errNoPeer
	}
	st.peer.Addr = p.Addr.String()
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.PeerCertificates) == 0 {
		return errNoPeer
	}
	leaf := info.State.PeerCertificates[0]
	id, err := spiffeid.PeerFromCertificate(st.s.cfg.TrustDomain, leaf)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoPeer, err)
	}
	st.peer.ID, st.peer.PodUID, st.peer.Node = id.Pod.Name, id.Pod.UID, id.Pod.Node
	st.peer.Identity = id.ID.String()
	st.peer.Serial, st.peer.NotAfter = svid.Serial(leaf), leaf.NotAfter
	if !st.s.cfg.Now().Before(leaf.NotAfter) {
		return errExpired
	}
	return nil
}

// receive passes on what arrives, until the stream fails or the handler is gone.
func (st *stream) receive(ctx context.Context, in chan<- received) {
	for {
		m, err := st.rpc.Recv()
		select {
		case in <- received{m, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// first awaits the Subscribe.
func (st *stream) first(ctx context.Context, in <-chan received) (*discoveryv1.Subscribe, error) {
	timer := time.NewTimer(st.s.cfg.FirstMessage)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-timer.C:
		return nil, errSilent
	case r := <-in:
		if r.err != nil {
			return nil, ended(r.err)
		}
		m := r.message.GetSubscribe()
		if m == nil {
			return nil, fmt.Errorf("%w: the first message is not Subscribe", discovery.ErrProtocol)
		}
		return m, nil
	}
}

// admit checks what Subscribe says by itself and against the certificate.
func (st *stream) admit(m *discoveryv1.Subscribe) error {
	if v := m.GetWireVersion(); v != discovery.WireVersion {
		return wireError{client: v}
	}
	var err error
	if st.scope, err = discovery.ScopeFromProto(m.GetScope()); err != nil {
		return err
	}
	if st.peer.ID == "" || m.GetNodeId() != st.peer.ID {
		return fmt.Errorf("%w: node_id %q is not its own", ErrDenied, m.GetNodeId())
	}
	st.peer.EnvoyVersion, st.peer.BuildVersion = m.GetEnvoyVersion(), m.GetBuild().GetVersion()
	return nil
}

func (st *stream) authorize() error {
	if err := st.s.cfg.Authorizer.Authorize(st.peer, st.scope); err != nil {
		return fmt.Errorf("%w: %w", ErrDenied, err)
	}
	return nil
}

func (st *stream) subscribe(ctx context.Context, m *discoveryv1.Subscribe) error {
	have, err := discovery.SubscribeHave(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, st.s.cfg.SubscribeWait)
	defer cancel()
	sub, err := st.s.cfg.Subscribe(ctx, st.scope, st.peer, have, func() { st.end(snapshot.ErrSuperseded) })
	if err != nil {
		return err
	}
	st.sub = sub
	return nil
}

// schedule ends the stream with its SVID, and asks the client to go elsewhere before
// that, when the stream is old. It returns what unschedules.
func (st *stream) schedule() (stop func()) {
	age := jitter(st.s.cfg.MaxConnectionAge)
	timers := []*time.Timer{
		time.AfterFunc(st.peer.NotAfter.Sub(st.s.cfg.Now()), func() { st.end(errExpired) }),
		time.AfterFunc(age, func() { st.tell(notice{message: goodbye("the connection is old")}) }),
		time.AfterFunc(age+st.s.cfg.GoodbyeGrace, func() { st.end(errAged) }),
	}
	return func() {
		for _, t := range timers {
			t.Stop()
		}
	}
}

// jitter is d and 10 to 30 % more: later than gRPC's own jittered age of the
// connection, after which a client cannot come back on the same.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((0.1+0.2*rand.Float64())*float64(d))
}

// end ends the stream with a cause, of which the first counts.
func (st *stream) end(cause error) { st.cancel(cause) }

// tell has a message sent beside the snapshots; false if too many are waiting already.
func (st *stream) tell(n notice) bool {
	select {
	case st.notices <- n:
		return true
	default:
		return false
	}
}

// run is the handler's loop. It returns when the client or a cause ends the stream, or
// the sender fails. It does not wait for the sender, which returning from the RPC ends.
func (st *stream) run(ctx context.Context, in <-chan received) error {
	sender := make(chan error, 1)
	go func() { sender <- st.send(ctx) }()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-sender:
			return err
		case r := <-in:
			if r.err != nil {
				return ended(r.err)
			}
			if err := st.handle(r.message); err != nil {
				return err
			}
		}
	}
}

// ended is the end of a stream by its client.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// handle takes a message after the first.
func (st *stream) handle(m *discoveryv1.ClientMessage) error {
	switch m := m.GetMessage().(type) {
	case *discoveryv1.ClientMessage_Ack:
		a, err := discovery.AckFromProto(m.Ack)
		if err != nil {
			return err
		}
		return st.answer(a)
	case *discoveryv1.ClientMessage_Nack:
		a, err := discovery.NackFromProto(m.Nack)
		if err != nil {
			return err
		}
		return st.answer(a)
	case *discoveryv1.ClientMessage_NodeStatus:
		ports, status, err := discovery.StatusFromProto(m.NodeStatus)
		if err != nil {
			return err
		}
		st.sub.Report(ports, status)
		return nil
	case *discoveryv1.ClientMessage_Inventory:
		if !st.asked.Load() { // before anything of it is kept
			return fmt.Errorf("inventory: %w", snapshot.ErrAnswer)
		}
		refs, done, err := st.inventory.Add(m.Inventory)
		if err != nil || !done {
			return err
		}
		st.asked.Store(false)
		return st.sub.Inventory(refs)
	case *discoveryv1.ClientMessage_Subscribe:
		return fmt.Errorf("%w: a second Subscribe", discovery.ErrProtocol)
	}
	return fmt.Errorf("%w: message of no known kind", discovery.ErrProtocol)
}

func (st *stream) answer(a snapshot.Answer) error {
	if err := st.sub.Answer(a); err != nil {
		return err
	}
	if d := st.sent.Load(); d != nil && d.nonce == a.Nonce && st.sent.CompareAndSwap(d, nil) {
		st.s.metrics.ack.Observe(st.s.cfg.Now().Sub(d.at).Seconds())
		d.span.SetAttributes(attribute.Int("aether.resources.refused", len(a.Refused)), attribute.Int("aether.resources.pending", len(a.Pending)))
		d.span.End()
	}
	for _, r := range a.Refused {
		st.s.metrics.nacks.WithLabelValues(typeLabel(r.Name)).Inc()
	}
	return nil
}

// giveUp ends the span of what was sent and will not be answered any more.
func (st *stream) giveUp() {
	if d := st.sent.Swap(nil); d != nil {
		d.span.SetStatus(codes.Error, "the stream ended before the answer")
		d.span.End()
	}
}

// send is the sender's loop. It returns when the subscription or the stream is over.
func (st *stream) send(ctx context.Context) error {
	for {
		snap, wait, err := st.sub.Next()
		switch {
		case errors.Is(err, snapshot.ErrUnknownVersion):
			st.asked.Store(true)
			err = st.rpc.Send(&discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_InventoryRequest{InventoryRequest: &discoveryv1.InventoryRequest{}}})
		case err != nil:
		case wait == nil:
			err = st.sendSnapshot(ctx, snap)
		default:
			select {
			case <-ctx.Done():
				err = context.Cause(ctx)
			case <-wait:
			case n := <-st.notices:
				if err = st.rpc.Send(n.message); err == nil {
					err = n.then
				}
			}
		}
		if err != nil {
			return err
		}
	}
}

func (st *stream) sendSnapshot(ctx context.Context, snap snapshot.Snapshot) error {
	bytes := 0
	at := st.s.cfg.Now()
	// A trace of its own: that of the stream's opening is over, and what it answers are edits by many.
	_, span := st.s.cfg.Tracer.Start(ctx, "push", trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("aether.scope", st.scope.String()), attribute.String("aether.node_id", st.peer.ID), attribute.String("aether.version", snap.Version),
		attribute.Int("aether.resources.changed", len(snap.Changed)), attribute.Int("aether.resources.removed", len(snap.Removed))))
	for m := range discovery.Chunks(snap) {
		if ctx.Err() != nil {
			span.End()
			return context.Cause(ctx)
		}
		if m.GetSnapshot().GetLast() { // before its answer can arrive
			st.sent.Store(&departure{nonce: snap.Nonce, at: at, span: span})
		}
		if err := st.rpc.Send(m); err != nil {
			span.End()
			return err
		}
		bytes += proto.Size(m)
	}
	st.s.metrics.snapshot(len(snap.Changed), bytes)
	return nil
}
