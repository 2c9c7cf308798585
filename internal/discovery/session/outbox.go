package session

import (
	"context"
	"slices"
	"sync"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/snapshot"
)

// Subscribe sends the first message.
func (s *Session) Subscribe(m *discoveryv1.Subscribe) {
	s.out.put(func(o *outbox) {
		o.subscribe = &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Subscribe{Subscribe: m}}
	})
}

// List sends an inventory. The slice must not be changed afterwards.
func (s *Session) List(refs []snapshot.Ref) {
	s.out.put(func(o *outbox) { o.inventory, o.listing = refs, true })
}

// Answer sends an Ack or a Nack, in place of one that has not left yet.
func (s *Session) Answer(a snapshot.Answer) {
	s.out.put(func(o *outbox) { o.answer = discovery.AnswerToProto(a) })
}

// Report sends a status, in place of one that has not left yet.
func (s *Session) Report(m *discoveryv1.NodeStatus) {
	s.out.put(func(o *outbox) {
		o.status = &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_NodeStatus{NodeStatus: m}}
	})
}

// outbox holds what is to be sent, at most one of each kind: a newer answer or status
// replaces one that has not left yet, which is what the protocol means by them.
type outbox struct {
	wake chan struct{} // put sends, drain receives; room for one

	mu        sync.Mutex // guards what follows
	subscribe *discoveryv1.ClientMessage
	inventory []snapshot.Ref
	listing   bool // inventory is to be sent, be it empty
	answer    *discoveryv1.ClientMessage
	status    *discoveryv1.ClientMessage
}

// put changes what is to be sent and wakes the writer.
func (o *outbox) put(change func(*outbox)) {
	o.mu.Lock()
	change(o)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// take returns what is to be sent, in the order of the protocol, and forgets it.
func (o *outbox) take() []*discoveryv1.ClientMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []*discoveryv1.ClientMessage
	if o.subscribe != nil {
		out = append(out, o.subscribe)
	}
	if o.listing {
		out = slices.AppendSeq(out, discovery.InventoryChunks(slices.Values(o.inventory)))
	}
	if o.answer != nil {
		out = append(out, o.answer)
	}
	if o.status != nil {
		out = append(out, o.status)
	}
	o.subscribe, o.inventory, o.listing, o.answer, o.status = nil, nil, false, nil, nil
	return out
}

// drain sends until ctx or the stream is done. A stream that cannot be written to has
// ended; its reader says why.
func (o *outbox) drain(ctx context.Context, stream discoveryv1.Discovery_StreamClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-o.wake:
		}
		for _, m := range o.take() {
			if stream.Send(m) != nil {
				return
			}
		}
	}
}
