// Package session is one stream to the controller, on a connection of its own: it turns
// messages into events and what is to be said into messages. It decides nothing and
// outlives nothing: when the stream ends, so does the session, and its owner opens
// another. Events leave by a function that the owner passes to Run; what is to be sent
// enters by methods that never block.
package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/stats"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/dial"
)

// What a session tells: Connected, then Begun, then any of the rest, at last Ended.
// A whole snapshot is told as a snapshot.Snapshot, its hashes verified.
type (
	// Connected says that the controller is who it should be: Subscribe may be sent.
	Connected struct{}
	// Begun says that the controller has sent its first message.
	Begun struct{}
	// Inventory says that the controller asks what is held.
	Inventory struct{}
	// Renew says that the controller asks for a new SVID.
	Renew struct{ Reason string }
	// Goodbye says that the stream will end, and how long to wait before another.
	Goodbye struct {
		Reason string
		After  time.Duration
	}
	// Ended says why the stream has ended. Nothing follows.
	Ended struct{ Err error }
)

// errEnded stands for an end without a status, which gRPC reports as an end of input.
var errEnded = errors.New("the controller has ended the stream")

// Session is one stream. It is made for one Run.
type Session struct {
	endpoint dial.Endpoint
	config   *tls.Config
	calls    stats.Handler
	out      outbox
}

// New prepares a session; config must ask for TLS 1.3 and verify the controller. What its stream
// does is told to calls, unless that is nil.
func New(endpoint dial.Endpoint, config *tls.Config, calls stats.Handler) *Session {
	return &Session{endpoint: endpoint, config: config, calls: calls, out: outbox{wake: make(chan struct{}, 1)}}
}

// Run connects and reads until the stream or ctx ends. It calls tell, from one
// goroutine, with each event; tell blocks until the event is taken, and returns false
// when nobody listens any more, which ends the session.
func (s *Session) Run(ctx context.Context, tell func(any) bool) {
	conn, err := dial.New(s.endpoint, s.config, s.calls)
	if err != nil {
		tell(Ended{err})
		return
	}
	defer func() { _ = conn.Close() }() // nothing is lost: the stream is over
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	stream, err := discoveryv1.NewDiscoveryClient(conn).Stream(ctx)
	if err != nil {
		tell(Ended{conn.Explain(err)})
		return
	}
	if !tell(Connected{}) {
		return
	}
	var writer sync.WaitGroup
	writer.Go(func() { s.out.drain(ctx, stream) })
	if err := read(stream, tell); err != nil {
		tell(Ended{conn.Explain(err)})
	}
	stop() // ends the writer
	writer.Wait()
}

// read tells what the stream brings. It returns nil only if nobody listens any more.
func read(stream discoveryv1.Discovery_StreamClient, tell func(any) bool) error {
	var chunks discovery.Assembler
	for first := true; ; first = false {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return errEnded
		}
		if err != nil {
			return err
		}
		if first && !tell(Begun{}) {
			return nil
		}
		var what any
		switch m := m.GetMessage().(type) {
		case *discoveryv1.ServerMessage_Snapshot:
			snap, done, err := chunks.Add(m.Snapshot)
			if err != nil {
				return err
			}
			if !done {
				continue
			}
			what = snap
		case *discoveryv1.ServerMessage_InventoryRequest:
			what = Inventory{}
		case *discoveryv1.ServerMessage_Renew:
			what = Renew{m.Renew.GetReason()}
		case *discoveryv1.ServerMessage_Goodbye:
			what = Goodbye{m.Goodbye.GetReason(), time.Duration(m.Goodbye.GetRetryAfterMs()) * time.Millisecond}
		default:
			return fmt.Errorf("%w: message of no known kind", discovery.ErrProtocol)
		}
		if !tell(what) {
			return nil
		}
	}
}
