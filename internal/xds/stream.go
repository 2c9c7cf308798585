package xds

import (
	"context"
	"fmt"
	"log/slog"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// outboxSize is more than can be unanswered at a time: one response of each kind, and
// those that Envoy withholds its answer to.
const outboxSize = 32

// stream is one connection of Envoy. The loop owns which one is served.
type stream struct {
	outbox chan *discoveryv3.DeltaDiscoveryResponse // from the loop
	over   chan struct{}                            // closed by the loop: another took its place, or it is stuck
	known  bool                                     // Envoy has said who it is; the loop's
}

// fromEnvoy is one request and where it came from.
type fromEnvoy struct {
	stream *stream
	req    *discoveryv3.DeltaDiscoveryRequest
}

// service is what Envoy calls.
type service struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	*Server
}

// DeltaAggregatedResources serves one stream. The newest one is served: Envoy has only
// one, and may open it before the end of the last has been noticed.
func (s service) DeltaAggregatedResources(g discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	ctx := g.Context()
	st := &stream{outbox: make(chan *discoveryv3.DeltaDiscoveryResponse, outboxSize), over: make(chan struct{})}
	select {
	case s.opened <- st:
	case <-s.stopped:
		return status.Error(codes.Unavailable, "stopped")
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // gRPC's own
	}
	defer func() {
		select {
		case s.closed <- st:
		case <-s.stopped:
		}
	}()
	received := make(chan error, 1)
	// Ends when the stream does, which is when this function returns.
	go func() { received <- s.receive(ctx, st, g.Recv) }()
	// Exits: Envoy went away, another stream took over, or the server stops.
	for {
		select {
		case r := <-st.outbox:
			if err := g.Send(r); err != nil {
				return err //nolint:wrapcheck // gRPC's own
			}
		case err := <-received:
			return err
		case <-st.over:
			return status.Error(codes.Aborted, "another stream has taken over")
		case <-s.stopped:
			return status.Error(codes.Unavailable, "stopped")
		}
	}
}

// receive hands requests to the loop. Exits: the stream ends.
func (s service) receive(ctx context.Context, st *stream, recv func() (*discoveryv3.DeltaDiscoveryRequest, error)) error {
	for {
		req, err := recv()
		if err != nil {
			return err
		}
		select {
		case s.inbox <- fromEnvoy{stream: st, req: req}:
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // gRPC's own
		case <-s.stopped:
			return status.Error(codes.Unavailable, "stopped")
		}
	}
}

// envoyVersion reads what Envoy says of itself: "1.40.0".
func envoyVersion(n *corev3.Node) string {
	v := n.GetUserAgentBuildVersion().GetVersion()
	if v == nil {
		return n.GetUserAgentVersion()
	}
	return fmt.Sprintf("%d.%d.%d", v.GetMajorNumber(), v.GetMinorNumber(), v.GetPatch())
}

// request and response are messages as the debug log shows them: no contents.
type (
	request struct {
		*discoveryv3.DeltaDiscoveryRequest
	}
	response struct {
		*discoveryv3.DeltaDiscoveryResponse
	}
)

// LogValue implements slog.LogValuer.
func (r request) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%s nonce=%s subscribe=%q unsubscribe=%q has=%d error=%q", r.GetTypeUrl(), r.GetResponseNonce(),
		r.GetResourceNamesSubscribe(), r.GetResourceNamesUnsubscribe(), len(r.GetInitialResourceVersions()), r.GetErrorDetail().GetMessage()))
}

// LogValue implements slog.LogValuer.
func (r response) LogValue() slog.Value {
	return slog.StringValue(fmt.Sprintf("%s nonce=%s resources=%d removed=%q", r.GetTypeUrl(), r.GetNonce(), len(r.GetResources()), r.GetRemovedResources()))
}
