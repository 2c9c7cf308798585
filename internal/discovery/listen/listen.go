// Package listen runs one gRPC server on one listener until a context ends, and then
// really stops it. It knows neither services nor certificates.
package listen

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
)

// Serve answers callers of lis with g until ctx is done, then lets calls in flight end
// for at most grace, closes what is left, and returns nil. It returns earlier, with an
// error, only if lis fails. Either way lis is closed and g is of no more use.
func Serve(ctx context.Context, g *grpc.Server, lis net.Listener, grace time.Duration) error {
	conns := &tracked{Listener: lis, open: make(map[*trackedConn]struct{})}
	served := make(chan error, 1)
	go func() { served <- g.Serve(conns) }() // ends with lis, or when g is stopped
	select {
	case err := <-served:
		conns.closeAll()
		g.Stop()
		return fmt.Errorf("serve %s: %w", lis.Addr(), err)
	case <-ctx.Done():
	}
	// GracefulStop and Stop wait for handshakes that have begun, which strangers may
	// stall; closing their connections ends those.
	stopped := make(chan struct{})
	go func() { g.GracefulStop(); close(stopped) }() // ends with the calls, or with Stop
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		conns.closeAll()
		g.Stop()
		<-stopped
	}
	// Stopped while it served gives nil, stopped before it had begun ErrServerStopped.
	if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve %s: %w", lis.Addr(), err)
	}
	return nil
}

// tracked remembers which of the connections that it accepted are open.
type tracked struct {
	net.Listener

	mu   sync.Mutex // guards open
	open map[*trackedConn]struct{}
	done bool // closeAll was called
}

// Accept implements net.Listener.
func (t *tracked) Accept() (net.Conn, error) {
	conn, err := t.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &trackedConn{Conn: conn, t: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done {
		_ = conn.Close()
	} else {
		t.open[c] = struct{}{}
	}
	return c, nil
}

func (t *tracked) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	for c := range t.open {
		_ = c.Conn.Close()
	}
}

type trackedConn struct {
	net.Conn
	t *tracked
}

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	c.t.mu.Lock()
	delete(c.t.open, c)
	c.t.mu.Unlock()
	return c.Conn.Close()
}
