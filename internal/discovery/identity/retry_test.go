package identity

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"aether.io/aether/internal/discovery/backoff"
)

func TestRetryWaits(t *testing.T) {
	limited := func(d time.Duration) error {
		st, err := status.New(codes.ResourceExhausted, "slow down").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(d)})
		if err != nil {
			t.Fatal(err)
		}
		return st.Err()
	}
	cases := map[string]struct {
		err         error
		least, most time.Duration
	}{
		"a refused identity waits at the ceiling":              {status.Error(codes.PermissionDenied, ""), backoff.Ceiling / 2, backoff.Ceiling},
		"a refused request is tried soon, with a fresh key":    {status.Error(codes.InvalidArgument, ""), backoff.Floor / 2, backoff.Floor},
		"a refused token is tried soon":                        {status.Error(codes.Unauthenticated, ""), backoff.Floor / 2, backoff.Floor},
		"an unusable CA is tried soon":                         {status.Error(codes.Unavailable, ""), backoff.Floor / 2, backoff.Floor},
		"a file that is missing is tried soon":                 {errNoToken, backoff.Floor / 2, backoff.Floor},
		"a rate limit is waited for":                           {limited(7 * time.Second), 7 * time.Second, 7700 * time.Millisecond},
		"a rate limit without a wait is tried soon":            {status.Error(codes.ResourceExhausted, ""), backoff.Floor / 2, backoff.Floor},
		"a rate limit below zero is tried soon":                {limited(-time.Hour), backoff.Floor / 2, backoff.Floor},
		"a rate limit beyond reason is waited for ten minutes": {limited(1000 * time.Hour), 10 * time.Minute, 11 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for range 100 {
				var r retry
				if got := r.failed(tc.err); got < tc.least || got > tc.most {
					t.Fatalf("waits %s, want %s to %s", got, tc.least, tc.most)
				}
			}
		})
	}
}

func TestRetryOnDemandIsAtOnceButNotInATightLoop(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	var r retry
	r.succeeded(now)
	var waits []time.Duration
	for range 8 {
		waits = append(waits, r.onDemand(now))
		r.succeeded(now)
	}
	if waits[0] != 0 || waits[1] == 0 || waits[7] < 5*time.Second {
		t.Errorf("waits %v, want none and then growing ones", waits)
	}
	if w := r.onDemand(now.Add(2 * time.Minute)); w != 0 {
		t.Errorf("after a quiet while it waits %s, want none", w)
	}
}

func TestRenewalIsAtHalfOfTheLifetime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for range 1000 {
		d := renewIn(now, now.Add(24*time.Hour))
		if d < 12*time.Hour*9/10 || d > 12*time.Hour*11/10 {
			t.Fatalf("renews in %s", d)
		}
		if d := renewIn(now, now.Add(50*time.Millisecond)); d < time.Second {
			t.Fatalf("renews a dying life in %s", d)
		}
		if d := renewIn(now, now.Add(-time.Hour)); d < time.Second {
			t.Fatalf("renews a dead life in %s", d)
		}
	}
}
