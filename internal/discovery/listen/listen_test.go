package listen_test

import (
	"context"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"aether.io/aether/internal/discovery/listen"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func listener(t *testing.T) net.Listener {
	t.Helper()
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

func TestServeEndsWithItsContextThoughStrangersStall(t *testing.T) {
	lis := listener(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- listen.Serve(ctx, grpc.NewServer(grpc.ConnectionTimeout(time.Hour)), lis, 10*time.Millisecond)
	}()
	stalled, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer stalled.Close()
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Serve: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Serve did not return")
	}
	if _, err := lis.Accept(); err == nil {
		t.Error("the listener is still open")
	}
}

func TestServeTellsThatItsListenerHasFailed(t *testing.T) {
	lis := listener(t)
	if err := lis.Close(); err != nil {
		t.Fatal(err)
	}
	if err := listen.Serve(t.Context(), grpc.NewServer(), lis, time.Second); err == nil {
		t.Error("Serve returned nil on a listener that is closed")
	}
}
