// Package port serves HTTP on a TCP port of a pod, for the kubelet and for who scrapes
// metrics. Anybody on the network may be on the other side: connections are bounded, as a
// whole and of each address, a request that is slow to come is given up, and none has a body.
package port

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"aether.io/aether/internal/connlimit"
	"aether.io/aether/internal/logkey"
)

// The bounds of one port.
const (
	maxConnections = 512
	maxOfAddress   = 32 // of which the kubelet, who has few, is never kept out (package connlimit)
	maxHeader      = 16 << 10
	headerTimeout  = 5 * time.Second
	idleTimeout    = time.Minute
)

// Check reports whether an address can be bound: host:port, host empty or an IP address.
func Check(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not host:port", address)
	}
	if host != "" && net.ParseIP(host) == nil {
		return fmt.Errorf("%q: the host is not an IP address", address)
	}
	if _, err := net.ResolveTCPAddr("tcp", address); err != nil {
		return fmt.Errorf("%q: %w", address, err)
	}
	return nil
}

// Serve answers on address until ctx is done. Requests that are under way then have their
// context ended, and are cut off.
func Serve(ctx context.Context, log *slog.Logger, address string, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	return serve(ctx, log, l, h)
}

func serve(ctx context.Context, log *slog.Logger, l net.Listener, h http.Handler) error {
	srv := &http.Server{
		Handler: bodiless(h), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(log.Handler(), slog.LevelDebug), // peers are not to fill the log
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(connlimit.New(l, maxConnections, maxOfAddress)) }()
	log.Debug("listening", logkey.Addr, l.Addr().String())
	// Exits: serving ended, ctx is done.
	select {
	case err := <-served:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return ctx.Err()
	}
}

// bodiless refuses requests that have a body: nothing here reads one.
func bodiless(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			http.Error(w, "requests have no body here", http.StatusRequestEntityTooLarge)
			return
		}
		h.ServeHTTP(w, r)
	})
}
