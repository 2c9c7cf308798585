package discovery

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/watermark"
)

// ScopeToProto gives the message for s, nil for the zero Scope.
func ScopeToProto(s scope.Scope) *discoveryv1.Scope {
	if s.IsSharedPool() {
		return &discoveryv1.Scope{Scope: &discoveryv1.Scope_SharedPool_{SharedPool: &discoveryv1.Scope_SharedPool{}}}
	}
	if ns, name, ok := s.GatewayName(); ok {
		return &discoveryv1.Scope{Scope: &discoveryv1.Scope_Gateway_{Gateway: &discoveryv1.Scope_Gateway{Namespace: ns, Name: name}}}
	}
	return nil
}

// ScopeFromProto returns scope.ErrInvalid if m is absent, empty or of a kind unknown here.
func ScopeFromProto(m *discoveryv1.Scope) (scope.Scope, error) {
	switch m.GetScope().(type) {
	case *discoveryv1.Scope_SharedPool_:
		return scope.SharedPool(), nil
	case *discoveryv1.Scope_Gateway_:
		return scope.Gateway(m.GetGateway().GetNamespace(), m.GetGateway().GetName())
	}
	return scope.Scope{}, scope.ErrInvalid
}

// MarkToProto gives the message for m. It does not share the map.
func MarkToProto(m watermark.Mark) *discoveryv1.Watermark {
	return &discoveryv1.Watermark{Epoch: m.Epoch, Positions: maps.Clone(m.Positions)}
}

// MarkFromProto gives the mark for m, the zero one if m is absent.
func MarkFromProto(m *discoveryv1.Watermark) watermark.Mark {
	return watermark.Mark{Epoch: m.GetEpoch(), Positions: maps.Clone(m.GetPositions())}
}

// NameToProto gives the message for n.
func NameToProto(n resource.Name) *discoveryv1.ResourceName {
	return &discoveryv1.ResourceName{TypeUrl: n.TypeURL, Name: n.Name}
}

// SubscribeHave reads what a Subscribe says the client holds.
func SubscribeHave(m *discoveryv1.Subscribe) (snapshot.Have, error) {
	h := snapshot.Have{Version: m.GetHaveVersion(), Mark: MarkFromProto(m.GetWatermark())}
	for _, p := range m.GetRefused() {
		r, err := refFrom(p)
		if err != nil {
			return snapshot.Have{}, fmt.Errorf("refused: %w", err)
		}
		h.Refused = append(h.Refused, resource.Refusal{Name: r.Name, Hash: r.Hash})
	}
	return h, nil
}

// RefusedToProto lists refusals as Subscribe carries them.
func RefusedToProto(refused []resource.Refusal) []*discoveryv1.ResourceRef {
	out := make([]*discoveryv1.ResourceRef, 0, len(refused))
	for _, r := range refused {
		out = append(out, &discoveryv1.ResourceRef{TypeUrl: r.TypeURL, Name: r.Name.Name, Hash: r.Hash[:]})
	}
	return out
}

// AnswerToProto gives an Ack if nothing is refused, else a Nack.
func AnswerToProto(a snapshot.Answer) *discoveryv1.ClientMessage {
	pending := make([]*discoveryv1.ResourceName, 0, len(a.Pending))
	for _, n := range a.Pending {
		pending = append(pending, NameToProto(n))
	}
	if len(a.Refused) == 0 {
		return &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Ack{Ack: &discoveryv1.Ack{
			Version: a.Version, Nonce: a.Nonce, Pending: pending,
		}}}
	}
	errs := make([]*discoveryv1.ResourceError, 0, len(a.Refused))
	for _, r := range a.Refused {
		errs = append(errs, &discoveryv1.ResourceError{TypeUrl: r.TypeURL, Name: r.Name.Name, Detail: r.Detail})
	}
	return &discoveryv1.ClientMessage{Message: &discoveryv1.ClientMessage_Nack{Nack: &discoveryv1.Nack{
		Version: a.Version, Nonce: a.Nonce, Errors: errs, Pending: pending,
	}}}
}

// AckFromProto reads an Ack.
func AckFromProto(m *discoveryv1.Ack) (snapshot.Answer, error) {
	pending, err := namesFrom(m.GetPending())
	if err != nil {
		return snapshot.Answer{}, fmt.Errorf("ack: %w", err)
	}
	return snapshot.Answer{Nonce: m.GetNonce(), Version: m.GetVersion(), Outcome: resource.Outcome{Pending: pending}}, nil
}

// NackFromProto reads a Nack, which must name what it refuses.
func NackFromProto(m *discoveryv1.Nack) (snapshot.Answer, error) {
	pending, err := namesFrom(m.GetPending())
	if err != nil {
		return snapshot.Answer{}, fmt.Errorf("nack: %w", err)
	}
	if len(m.GetErrors()) == 0 {
		return snapshot.Answer{}, fmt.Errorf("nack: %w: names no resource", ErrProtocol)
	}
	a := snapshot.Answer{Nonce: m.GetNonce(), Version: m.GetVersion(), Outcome: resource.Outcome{Pending: pending}}
	for _, e := range m.GetErrors() {
		n, err := nameFrom(e.GetTypeUrl(), e.GetName())
		if err != nil {
			return snapshot.Answer{}, fmt.Errorf("nack: %w", err)
		}
		a.Refused = append(a.Refused, resource.Refusal{Name: n, Detail: e.GetDetail()})
	}
	return a, nil
}

// StatusToProto gives the message for what a proxy observes of itself.
func StatusToProto(ports []uint32, s fleet.Status) *discoveryv1.NodeStatus {
	m := &discoveryv1.NodeStatus{
		BoundPorts: ports, SvidSerial: s.SVIDSerial, IssuerKeyId: s.IssuerKeyID, SvidNotAfter: timeTo(s.SVIDNotAfter),
		MountedRoots: s.MountedRoots, PushedRoots: s.PushedRoots, EnvoyVersion: s.EnvoyVersion,
	}
	for _, c := range s.Checks {
		m.Checks = append(m.Checks, &discoveryv1.Check{Name: c.Name, State: c.State, Reason: c.Reason, Since: timeTo(c.Since)})
	}
	return m
}

// StatusFromProto reads a NodeStatus. It returns an error for a number that is no port.
func StatusFromProto(m *discoveryv1.NodeStatus) ([]uint32, fleet.Status, error) {
	ports := slices.Clone(m.GetBoundPorts())
	slices.Sort(ports)
	ports = slices.Compact(ports)
	if n := len(ports); n > 0 && (ports[0] == 0 || ports[n-1] > 65535) {
		return nil, fleet.Status{}, fmt.Errorf("node status: %w: bound port out of range", ErrProtocol)
	}
	s := fleet.Status{
		SVIDSerial: m.GetSvidSerial(), IssuerKeyID: m.GetIssuerKeyId(), SVIDNotAfter: timeFrom(m.GetSvidNotAfter()),
		MountedRoots: slices.Clone(m.GetMountedRoots()), PushedRoots: slices.Clone(m.GetPushedRoots()),
		EnvoyVersion: m.GetEnvoyVersion(),
	}
	for _, c := range m.GetChecks() {
		s.Checks = append(s.Checks, fleet.Check{Name: c.GetName(), State: c.GetState(), Reason: c.GetReason(), Since: timeFrom(c.GetSince())})
	}
	return ports, s, nil
}

func timeTo(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func timeFrom(t *timestamppb.Timestamp) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.AsTime()
}

func nameFrom(typeURL, name string) (resource.Name, error) {
	if typeURL == "" || name == "" {
		return resource.Name{}, fmt.Errorf("%w: resource without type or name", ErrProtocol)
	}
	return resource.Name{TypeURL: typeURL, Name: name}, nil
}

func namesFrom(ms []*discoveryv1.ResourceName) ([]resource.Name, error) {
	out := make([]resource.Name, 0, len(ms))
	for _, m := range ms {
		n, err := nameFrom(m.GetTypeUrl(), m.GetName())
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func refFrom(m *discoveryv1.ResourceRef) (snapshot.Ref, error) {
	n, err := nameFrom(m.GetTypeUrl(), m.GetName())
	if err != nil {
		return snapshot.Ref{}, err
	}
	h, err := hashFrom(m.GetHash())
	if err != nil {
		return snapshot.Ref{}, fmt.Errorf("%s: %w", n, err)
	}
	return snapshot.Ref{Name: n, Hash: h}, nil
}

func hashFrom(b []byte) (resource.Hash, error) {
	var h resource.Hash
	if len(b) != len(h) {
		return h, fmt.Errorf("%w: hash of %d bytes", ErrProtocol, len(b))
	}
	copy(h[:], b)
	return h, nil
}
