package identity

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"aether.io/aether/internal/discovery/backoff"
)

const (
	// quiet is how long after an issuance another may be demanded without a wait.
	quiet = time.Minute
	// longestRetryAfter bounds what a server may ask for.
	longestRetryAfter = 10 * time.Minute
)

// retry decides when the next attempt is made. It starts no timer.
type retry struct {
	failures backoff.Backoff
	demands  backoff.Backoff
	last     time.Time // of the newest issuance
}

func (r *retry) succeeded(now time.Time) {
	r.failures.Reset()
	r.last = now
}

// failed returns the wait after a failure. Every attempt makes a fresh key, so a
// refused certificate request needs nothing of its own.
func (r *retry) failed(err error) time.Duration {
	st, _ := status.FromError(err)
	switch st.Code() { //nolint:exhaustive // the others are retried alike
	case codes.PermissionDenied:
		return r.failures.AtCeiling()
	case codes.ResourceExhausted:
		if after, ok := RetryAfter(st); ok {
			return max(after+backoff.Spread(after/20, 1), r.failures.Next())
		}
	}
	return r.failures.Next()
}

// onDemand returns the wait before a renewal that was asked for: none, unless the last
// issuance was a moment ago, so that no peer makes us ask in a tight loop.
func (r *retry) onDemand(now time.Time) time.Duration {
	if now.Sub(r.last) >= quiet {
		r.demands.Reset()
	}
	if r.demands.Failures() == 0 {
		_ = r.demands.Next()
		return 0
	}
	return r.demands.Next()
}

// RetryAfter reads the wait that a server asks for in a status: at most ten minutes.
func RetryAfter(st *status.Status) (time.Duration, bool) {
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok && info.GetRetryDelay().IsValid() {
			return min(max(info.GetRetryDelay().AsDuration(), 0), longestRetryAfter), true
		}
	}
	return 0, false
}
