package port

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	// net/http lets a connection that it refused linger for half a second by itself.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

const patience = 20 * time.Second

// start serves h until the test ends, and returns where.
func start(t *testing.T, h http.Handler) string {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, slog.New(slog.DiscardHandler), l, h) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("serve: %v", err)
		}
	})
	return l.Addr().String()
}

// dial is a connection of the test's, with a deadline for all that is done with it.
func dial(t *testing.T, address string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ask sends a request and returns its answer's status, 0 if the connection was closed.
func ask(t *testing.T, c net.Conn, request string) int {
	t.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

var ok = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })

func TestOnePeerHasSoManyConnectionsAndNoMore(t *testing.T) {
	address := start(t, ok)
	const request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"
	var kept []net.Conn
	for range maxOfAddress {
		c := dial(t, address)
		if code := ask(t, c, request); code != http.StatusOK {
			t.Fatalf("connection %d: %d", len(kept), code)
		}
		kept = append(kept, c)
	}
	if code := ask(t, dial(t, address), request); code != 0 {
		t.Fatalf("one connection too many is answered %d", code)
	}
	_ = kept[0].Close()
	deadline := time.Now().Add(patience)
	for ask(t, dial(t, address), request) != http.StatusOK { // the server learns of it by itself
		if time.Now().After(deadline) {
			t.Fatal("the place of a closed connection is not given to another")
		}
	}
}

func TestARequestWithABodyIsRefused(t *testing.T) {
	address := start(t, ok)
	for name, request := range map[string]string{
		"a length":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello",
		"in chunks":  "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"big header": "GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n",
	} {
		if code := ask(t, dial(t, address), request); code < 400 {
			t.Errorf("%s: %d", name, code)
		}
	}
}

func TestAnAnswerThatTakesLongEndsWithTheServer(t *testing.T) {
	entered, ended := make(chan struct{}), make(chan struct{})
	t.Run("serving", func(t *testing.T) {
		address := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			close(entered)
			<-r.Context().Done()
			close(ended)
		}))
		if _, err := io.WriteString(dial(t, address), "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-entered
	})
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the request goes on")
	}
}

func TestAddresses(t *testing.T) {
	for address, good := range map[string]bool{
		":8080": true, "0.0.0.0:8082": true, "[::]:8080": true, "127.0.0.1:0": true,
		"8080": false, "": false, "localhost:8080": false, ":x": false, ":70000": false, "::1:80": false,
	} {
		if err := Check(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
