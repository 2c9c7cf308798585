package controller

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/svid"
)

// Stream is one stream of a client, driven by the test.
type Stream struct {
	Subscribe *discoveryv1.Subscribe
	Serial    string        // of the client's SVID, decimal
	Gone      chan struct{} // closed when the client has gone, or End was called

	t        testing.TB
	server   discoveryv1.Discovery_StreamServer
	received chan *discoveryv1.ClientMessage
	end      chan error
}

type streamServer struct {
	discoveryv1.UnimplementedDiscoveryServer
	c *Controller
}

func (s *streamServer) Stream(server discoveryv1.Discovery_StreamServer) error {
	first, err := server.Recv()
	if err != nil {
		return err
	}
	st := &Stream{
		Subscribe: first.GetSubscribe(), Gone: make(chan struct{}), t: s.c.t, server: server,
		received: make(chan *discoveryv1.ClientMessage, 4096), end: make(chan error, 1),
	}
	p, _ := peer.FromContext(server.Context())
	st.Serial = svid.Serial(p.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0])
	go func() { // ends with the stream
		for {
			m, err := server.Recv()
			if err != nil {
				return
			}
			select {
			case st.received <- m:
			default:
				s.c.t.Error("client sends without end")
				return
			}
		}
	}()
	s.c.Opened <- st
	defer close(st.Gone)
	select {
	case err := <-st.end:
		return err
	case <-server.Context().Done():
		return server.Context().Err()
	}
}

// Next waits for the next stream.
func (c *Controller) Next(t testing.TB) *Stream {
	t.Helper()
	return Wait(t, "a stream", c.Opened)
}

// End ends the stream with an error, or without.
func (s *Stream) End(err error) {
	s.end <- err
	<-s.Gone
}

// Send sends one message. A client that has gone is not an error.
func (s *Stream) Send(m *discoveryv1.ServerMessage) { _ = s.server.Send(m) }

// Snapshot sends a snapshot in as many chunks as it takes, and returns their number.
func (s *Stream) Snapshot(snap snapshot.Snapshot) int {
	n := 0
	for m := range discovery.Chunks(snap) {
		s.Send(m)
		n++
	}
	return n
}

// Renew asks for a new SVID.
func (s *Stream) Renew() {
	s.Send(&discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Renew{Renew: &discoveryv1.Renew{Reason: "test"}}})
}

// Goodbye announces the end.
func (s *Stream) Goodbye(after time.Duration) {
	s.Send(&discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_Goodbye{
		Goodbye: &discoveryv1.Goodbye{Reason: "test", RetryAfterMs: uint32(after.Milliseconds())},
	}})
}

// AskInventory asks for what is held and returns it.
func (s *Stream) AskInventory(t testing.TB) []snapshot.Ref {
	t.Helper()
	s.Send(&discoveryv1.ServerMessage{Message: &discoveryv1.ServerMessage_InventoryRequest{InventoryRequest: &discoveryv1.InventoryRequest{}}})
	var all discovery.InventoryAssembler
	for {
		refs, done, err := all.Add(s.Message(t, "an inventory", func(m *discoveryv1.ClientMessage) bool { return m.GetInventory() != nil }).GetInventory())
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return refs
		}
	}
}

// Answer waits for the next Ack or Nack.
func (s *Stream) Answer(t testing.TB) snapshot.Answer {
	t.Helper()
	m := s.Message(t, "an answer", func(m *discoveryv1.ClientMessage) bool { return m.GetAck() != nil || m.GetNack() != nil })
	a, err := discovery.AckFromProto(m.GetAck())
	if m.GetNack() != nil {
		a, err = discovery.NackFromProto(m.GetNack())
	}
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Status waits for a NodeStatus that fits.
func (s *Stream) Status(t testing.TB, what string, fits func(*discoveryv1.NodeStatus) bool) *discoveryv1.NodeStatus {
	t.Helper()
	return s.Message(t, "a status: "+what, func(m *discoveryv1.ClientMessage) bool {
		return m.GetNodeStatus() != nil && fits(m.GetNodeStatus())
	}).GetNodeStatus()
}

// Message waits for a message that fits, and passes over others.
func (s *Stream) Message(t testing.TB, what string, fits func(*discoveryv1.ClientMessage) bool) *discoveryv1.ClientMessage {
	t.Helper()
	late := time.After(Patience)
	var over []string
	for {
		select {
		case m := <-s.received:
			if fits(m) {
				return m
			}
			over = append(over, fmt.Sprint(m))
		case <-s.Gone:
			t.Fatalf("the stream ended before %s; received instead: %v", what, over)
		case <-late:
			t.Fatalf("no %s; received instead: %v", what, over)
		}
	}
}

// Wait receives from a channel, and fails the test if nothing comes.
func Wait[T any](t testing.TB, what string, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(Patience):
		t.Fatalf("no %s within %s", what, Patience)
		panic("unreachable")
	}
}
