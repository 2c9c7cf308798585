package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"aether.io/aether/internal/discovery"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
)

// ErrDenied says that the peer may not have what it asks for.
var ErrDenied = errors.New("denied")

// Why streams end, beside what the packages discovery, scope and snapshot name.
var (
	errNoPeer   = errors.New("no identity proved")
	errExpired  = errors.New("the SVID has expired")
	errSilent   = errors.New("no Subscribe in time")
	errAged     = errors.New("the client stayed after goodbye")
	errStopping = errors.New("the controller is stopping")
	errBusy     = errors.New("as many streams as are allowed")
	errOver     = errors.New("the stream is over")
)

// busyRetry is when a client that was sent away may come back.
const busyRetry = 5 * time.Second

// wireError is a wire version that is not ours.
type wireError struct{ client uint32 }

func (e wireError) Error() string {
	return fmt.Sprintf("wire version of the client is %d, of the controller %d", e.client, discovery.WireVersion)
}

// statusOf is what the client is told. What it was refused for stays here.
func statusOf(err error) *status.Status {
	var wire wireError
	switch {
	case err == nil:
		return status.New(codes.OK, "")
	case errors.As(err, &wire):
		return status.New(codes.FailedPrecondition, wire.Error())
	case errors.Is(err, scope.ErrInvalid):
		return status.New(codes.InvalidArgument, scope.ErrInvalid.Error())
	case errors.Is(err, ErrDenied):
		return status.New(codes.PermissionDenied, "permission denied")
	case errors.Is(err, errNoPeer):
		return status.New(codes.Unauthenticated, "unauthenticated")
	case errors.Is(err, errExpired):
		return status.New(codes.Unauthenticated, errExpired.Error())
	case errors.Is(err, discovery.ErrProtocol), errors.Is(err, snapshot.ErrAnswer):
		return status.New(codes.InvalidArgument, err.Error())
	case errors.Is(err, snapshot.ErrNotSynced), errors.Is(err, snapshot.ErrBehind),
		errors.Is(err, errStopping), errors.Is(err, errAged):
		return status.New(codes.Unavailable, err.Error())
	case errors.Is(err, errSilent):
		return status.New(codes.DeadlineExceeded, errSilent.Error())
	case errors.Is(err, snapshot.ErrSuperseded):
		return status.New(codes.Aborted, snapshot.ErrSuperseded.Error())
	case errors.Is(err, errBusy):
		return busy()
	case errors.Is(err, context.Canceled), errors.Is(err, errOver):
		return status.New(codes.Canceled, "canceled")
	}
	if st, ok := status.FromError(err); ok { // gRPC's own, such as a message over the limit
		return st
	}
	return status.New(codes.Internal, "internal error")
}

func busy() *status.Status {
	st := status.New(codes.ResourceExhausted, errBusy.Error())
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(busyRetry)}); err == nil {
		return with
	}
	return st
}

// levelOf is how loud the end of a stream is told: what a person would act on is a warning.
func levelOf(err error) slog.Level {
	switch statusOf(err).Code() { //nolint:exhaustive // the others are life
	case codes.FailedPrecondition, codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated,
		codes.ResourceExhausted, codes.Internal, codes.DeadlineExceeded:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}
