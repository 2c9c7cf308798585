//go:build component

package reference_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/reference"
)

const patience = time.Minute

// startBackends listens on n loopback addresses at one port; each says its number.
func startBackends(t *testing.T, n int) (addresses []string, port int32) {
	t.Helper()
	type local struct{}
	server := &http.Server{
		ReadHeaderTimeout: patience,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, local{}, c.LocalAddr().String())
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.Context().Value(local{}).(string))
			var number int
			_, _ = fmt.Sscanf(host, "127.0.1.%d", &number)
			w.Header().Set("X-Backend", fmt.Sprintf("%s/b%d:80", pool, number-1))
		}),
	}
	done := make(chan error, n)
	for i := range n {
		address := fmt.Sprintf("127.0.1.%d", i+1)
		l, err := net.Listen("tcp", fmt.Sprintf("%s:%d", address, port))
		if err != nil {
			t.Fatal(err)
		}
		port = int32(l.Addr().(*net.TCPAddr).Port)
		addresses = append(addresses, address)
		go func() { done <- server.Serve(l) }()
	}
	t.Cleanup(func() {
		_ = server.Close()
		for range n {
			<-done
		}
	})
	return addresses, port
}

// client sends requests exactly as they are written, over connections that it keeps.
type client struct{ open map[string]*connection }

type connection struct {
	net.Conn
	in *bufio.Reader
}

func (c *client) close() {
	for k, conn := range c.open {
		_ = conn.Close()
		delete(c.open, k)
	}
}

// send returns who answered: a backend, a status, or Closed.
func (c *client) send(r reference.Request) string {
	key := fmt.Sprint(r.Port, r.TLS, r.SNI)
	conn := c.open[key]
	if conn == nil {
		var err error
		if conn, err = dial(r); err != nil {
			return reference.Closed
		}
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	outcome, keep := conn.ask(r)
	if keep {
		c.open[key] = conn
	} else {
		_ = conn.Close()
		delete(c.open, key)
	}
	return outcome
}

func dial(r reference.Request) (*connection, error) {
	raw, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", r.Port), patience)
	if err != nil {
		return nil, err
	}
	if r.TLS {
		conn := tls.Client(raw, &tls.Config{ServerName: r.SNI, InsecureSkipVerify: true})
		_ = raw.SetDeadline(time.Now().Add(patience))
		if err := conn.Handshake(); err != nil {
			_ = raw.Close()
			return nil, err
		}
		raw = conn
	}
	return &connection{Conn: raw, in: bufio.NewReader(raw)}, nil
}

func (c *connection) ask(r reference.Request) (outcome string, keep bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", r.Method, r.Target, r.Host)
	for _, h := range r.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h.Name, h.Value)
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut {
		b.WriteString("Content-Length: 0\r\n")
	}
	b.WriteString("\r\n")
	if _, err := io.WriteString(c, b.String()); err != nil {
		return reference.Closed, false
	}
	resp, err := http.ReadResponse(c.in, &http.Request{Method: r.Method})
	if err != nil {
		return reference.Closed, false
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return reference.Closed, false
	}
	if name := resp.Header.Get("X-Backend"); name != "" && resp.StatusCode == http.StatusOK {
		return name, !resp.Close
	}
	return fmt.Sprint(resp.StatusCode), !resp.Close
}
