package xds

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/xds/delta"
	"aether.io/aether/internal/xds/lastgood"
)

// maxRequest bounds a message of Envoy in bytes: it names all that it holds.
const maxRequest = 64 << 20

// Run takes the socket over, restores what was last good and serves until ctx is done.
// It is called once. When it ends, Envoy goes on with what it has.
//
// Three parts: the loop, which owns all protocol state; the looker, which asks the
// machine and Envoy's admin socket; gRPC with two goroutines per stream, which pass
// messages to and from the loop.
func (s *Server) Run(ctx context.Context) (err error) {
	defer close(s.stopped)
	restored := false
	defer func() {
		if !restored {
			close(s.restored)
		}
	}()
	sock, err := listen(s.cfg.Socket)
	if err != nil {
		return fmt.Errorf("local xDS server: %w", err)
	}
	defer func() { err = errors.Join(err, sock.release()) }()

	book := delta.New(strconv.FormatInt(time.Now().UnixNano(), 36))
	store, err := s.restore(ctx, book)
	if err != nil {
		return fmt.Errorf("local xDS server: %w", err)
	}
	if store != nil {
		defer func() { err = errors.Join(err, store.Close()) }()
	}
	restored = true
	close(s.restored)

	l := newLoop(s, book, store)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(16),
		grpc.ConnectionTimeout(10*time.Second),
		// Our Envoy may ask as often as its bootstrap says whether we are there. By default
		// gRPC ends the connection of a client that asks more than once in 5 minutes.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Nanosecond, PermitWithoutStream: true}))
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, service{Server: s})
	parts, ctx := errgroup.WithContext(ctx)
	parts.Go(func() error {
		l.run(ctx)
		g.Stop()
		return nil
	})
	parts.Go(func() error {
		s.look(ctx, l.questions, l.sights)
		return nil
	})
	parts.Go(func() error {
		if err := g.Serve(sock); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("local xDS server: serve %s: %w", s.cfg.Socket, err)
		}
		return nil
	})
	return parts.Wait() //nolint:wrapcheck // wrapped above
}

// restore reads the last-good store, if one is kept, into book and image.
func (s *Server) restore(ctx context.Context, book *delta.Book) (*lastgood.Store, error) {
	if s.cfg.StateDir == "" {
		return nil, nil //nolint:nilnil // no store is a valid one
	}
	store, im, lost, err := lastgood.Open(s.cfg.StateDir)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	if lost > 0 {
		s.log.LogAttrs(ctx, slog.LevelWarn, "end of the last-good store was damaged and is dropped",
			slog.Int64(logkey.Count, lost), slog.String(logkey.Path, s.cfg.StateDir))
	}
	s.met.lastGood.Set(float64(store.Size()))
	if im.IsZero() {
		return store, nil
	}
	book.Restore(im)
	s.mu.Lock()
	s.image = im
	s.observed.Version, s.observed.Refused = im.Version, book.Refused()
	s.mu.Unlock()
	s.log.LogAttrs(ctx, slog.LevelInfo, "restored last-good",
		slog.String(logkey.Version, im.Version), slog.Int(logkey.Count, len(im.Resources)))
	return store, nil
}
