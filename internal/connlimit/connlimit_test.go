package connlimit_test

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"aether.io/aether/internal/connlimit"
)

// patience is for what is to happen at once.
const patience = 10 * time.Second

// dial connects from an address of loopback.
func dial(t *testing.T, l net.Listener, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// served reports whether the peer has kept a connection: it says hello on all that it accepts.
func served(t *testing.T, c net.Conn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("neither served nor closed")
	}
	return err == nil
}

func TestConnectionsPastABoundAreClosedAndCountUntilTheyEnd(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := connlimit.New(inner, 3, 2)
	accepted := make(chan net.Conn, 8)
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("hello"))
			accepted <- c
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })

	for range 2 {
		if !served(t, dial(t, inner, "127.0.0.1")) {
			t.Fatal("within the bounds it is not served")
		}
	}
	if served(t, dial(t, inner, "127.0.0.1")) {
		t.Error("a third of one address is served")
	}
	if !served(t, dial(t, inner, "127.0.0.2")) {
		t.Error("another address is not served")
	}
	if served(t, dial(t, inner, "127.0.0.2")) {
		t.Error("a fourth in all is served to one that would have as many as any")
	}
	first := <-accepted
	for range 2 { // closed twice, it counts once
		_ = first.Close()
	}
	if !served(t, dial(t, inner, "127.0.0.3")) {
		t.Error("one has ended, and the next is not served")
	}
	if served(t, dial(t, inner, "127.0.0.4")) {
		t.Error("closing twice made room for two")
	}
	for range 3 {
		_ = (<-accepted).Close()
	}
}

// Those who hold many connections do not keep out one who asks for one.
func TestWhenAllAreTakenTheOldestOfWhoHasTheMostGoes(t *testing.T) {
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := connlimit.New(inner, 5, 3)
	done := make(chan struct{})
	var accepted []net.Conn
	go func() { // ends with the listener
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			accepted = append(accepted, c)
			_, _ = c.Write([]byte("hello"))
		}
		for _, c := range accepted {
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })

	held := map[string][]net.Conn{}
	for _, from := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2", "127.0.0.1"} {
		c := dial(t, inner, from)
		if !served(t, c) {
			t.Fatal("within the bounds it is not served")
		}
		held[from] = append(held[from], c)
	}
	if !served(t, dial(t, inner, "127.0.0.3")) {
		t.Error("it is kept out by those who hold many")
	}
	if _, err := held["127.0.0.2"][0].Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the oldest of who has the most: %v, want its end", err)
	}
	if served(t, dial(t, inner, "127.0.0.2")) {
		t.Error("who has as many as any displaces another's")
	}
}
