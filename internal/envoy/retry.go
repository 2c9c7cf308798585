package envoy

import (
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	previousv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

const (
	maxTries = 3 // of a request, each at another endpoint

	// maxChoices bounds how often an endpoint is drawn anew that was tried already. The one
	// that failed has the fewest requests, so the choice of the least busy of two prefers
	// it: of two endpoints it is drawn three times in four.
	maxChoices = 20
)

// retryPolicy has a request that reached no endpoint tried at another: one that is gone
// and not withdrawn yet costs no request. All three conditions say that nothing of it was
// read, so it may be one of any method. The time limit is the route's, for all tries. It
// stands here and not with the routes because it says nothing of them, and because their
// updates would bear it.
func retryPolicy() (*routev3.RetryPolicy, error) {
	previous, err := wire.Pack(&previousv3.PreviousHostsPredicate{})
	return &routev3.RetryPolicy{
		RetryOn:    "connect-failure,refused-stream,reset-before-request",
		NumRetries: wrapperspb.UInt32(maxTries - 1),
		RetryHostPredicate: []*routev3.RetryPolicy_RetryHostPredicate{{
			Name:       "envoy.retry_host_predicates.previous_hosts",
			ConfigType: &routev3.RetryPolicy_RetryHostPredicate_TypedConfig{TypedConfig: previous},
		}},
		HostSelectionRetryMaxAttempts: maxChoices,
	}, err
}
