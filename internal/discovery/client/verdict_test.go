package client

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/discovery/backoff"
	"aether.io/aether/internal/discovery/dial"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/watermark"
)

func TestVerdicts(t *testing.T) {
	limited, err := status.New(codes.ResourceExhausted, "").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(9 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	soon := [2]time.Duration{backoff.Floor / 2, backoff.Floor}
	late := [2]time.Duration{backoff.Ceiling / 2, backoff.Ceiling}
	cases := map[string]struct {
		err  error
		wait [2]time.Duration
		want verdict // but for its wait
	}{
		"another wire version is never retried by itself": {status.Error(codes.FailedPrecondition, ""), [2]time.Duration{}, verdict{skew: true}},
		"an identity that may not waits at the ceiling":   {status.Error(codes.PermissionDenied, ""), late, verdict{}},
		"a bad scope waits at the ceiling and is a bug":   {status.Error(codes.InvalidArgument, ""), late, verdict{bug: true}},
		"a message over the limit is a bug":               {status.Error(codes.ResourceExhausted, ""), soon, verdict{bug: true}},
		"a rate limit is waited for":                      {limited.Err(), [2]time.Duration{9 * time.Second, 9 * time.Second}, verdict{}},
		"an identity that is not accepted is renewed":     {status.Error(codes.Unauthenticated, ""), soon, verdict{renew: true}},
		"a replica that is behind is retried":             {status.Error(codes.Unavailable, ""), soon, verdict{}},
		"a TLS alert renews":                              {fmt.Errorf("x: %w", errors.Join(status.Error(codes.Unavailable, ""), dial.ErrRefused)), soon, verdict{renew: true}},
		"an end without an error is retried":              {errors.New("EOF"), soon, verdict{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var b backoff.Backoff
			got := judge(tc.err, &b)
			if got.wait < tc.wait[0] || got.wait > tc.wait[1] {
				t.Errorf("waits %s", got.wait)
			}
			if got.wait = 0; got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAnswersFitIntoAMessage(t *testing.T) {
	refused, detail := make([]resource.Refusal, 4000), strings.Repeat("ü", 10_000)
	for i := range refused {
		refused[i] = resource.Refusal{
			Name:   resource.Name{TypeURL: "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration", Name: fmt.Sprintf("name-%d", i)},
			Detail: detail,
		}
	}
	total := 0
	for i, r := range shortened(refused) {
		if r.Name != refused[i].Name || r.Detail == "" || !strings.HasPrefix(refused[i].Detail, r.Detail) {
			t.Fatalf("%d became %+v", i, r)
		}
		total += len(r.TypeURL) + len(r.Name.Name) + len(r.Detail) + 16
	}
	if total > discovery.MaxMessage {
		t.Errorf("%d bytes", total)
	}
}

func TestHighestMark(t *testing.T) {
	mark := func(epoch uint64, pods, nodes uint64) watermark.Mark {
		m := watermark.Mark{Epoch: epoch, Positions: map[string]uint64{}}
		if pods > 0 {
			m.Positions["pods"] = pods
		}
		if nodes > 0 {
			m.Positions["nodes"] = nodes
		}
		return m
	}
	cases := map[string]struct{ a, b, want watermark.Mark }{
		"types are taken together":   {mark(1, 5, 0), mark(1, 0, 7), mark(1, 5, 7)},
		"the higher position counts": {mark(1, 5, 7), mark(1, 6, 3), mark(1, 6, 7)},
		"a higher epoch supersedes":  {mark(1, 5, 7), mark(2, 1, 0), mark(2, 1, 0)},
		"a lower epoch is not taken": {mark(2, 1, 0), mark(1, 5, 7), mark(2, 1, 0)},
		"from the beginning":         {watermark.Mark{}, mark(0, 5, 7), mark(0, 5, 7)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := highest(tc.a, tc.b)
			if got.Epoch != tc.want.Epoch || len(got.Positions) != len(tc.want.Positions) ||
				got.Positions["pods"] != tc.want.Positions["pods"] || got.Positions["nodes"] != tc.want.Positions["nodes"] {
				t.Errorf("got %+v", got)
			}
		})
	}
}
