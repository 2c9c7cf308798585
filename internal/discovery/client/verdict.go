package client

import (
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"aether.io/aether/internal/discovery/backoff"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/discovery/identity"
)

// verdict is what follows from the end of a stream.
type verdict struct {
	wait  time.Duration // before the next stream
	renew bool          // obtain a new SVID meanwhile
	skew  bool          // the wire versions differ: the stream is not retried by itself
	bug   bool          // one of us is wrong, not the world
}

// judge counts the failure. The codes are those of the table in the protocol's
// description; whatever is not in it is retried with back-off.
func judge(err error, failures *backoff.Backoff) verdict {
	if errors.Is(err, dial.ErrRefused) {
		return verdict{wait: failures.Next(), renew: true}
	}
	st, _ := status.FromError(err)
	switch st.Code() { //nolint:exhaustive // the others are retried alike
	case codes.FailedPrecondition:
		return verdict{skew: true}
	case codes.PermissionDenied:
		return verdict{wait: failures.AtCeiling()}
	case codes.InvalidArgument:
		return verdict{wait: failures.AtCeiling(), bug: true}
	case codes.Unauthenticated:
		return verdict{wait: failures.Next(), renew: true}
	case codes.ResourceExhausted:
		if after, ok := identity.RetryAfter(st); ok {
			return verdict{wait: max(after, failures.Next())}
		}
		return verdict{wait: failures.Next(), bug: true}
	}
	return verdict{wait: failures.Next()}
}
