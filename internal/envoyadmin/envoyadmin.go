// Package envoyadmin asks the admin interface of the Envoy beside a proxy, which is a Unix
// socket. It knows a few of its paths and decides nothing.
package envoyadmin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// deadline bounds one question.
	deadline = 2 * time.Second
	// statsDeadline bounds the question for all statistics: of thousands of clusters they
	// take Envoy a while.
	statsDeadline = 5 * time.Second
	// maxAnswer bounds the answers that are small, in bytes.
	maxAnswer = 1 << 20
)

// ErrAbsent says that no Envoy listens on the socket: it is not running.
var ErrAbsent = errors.New("no Envoy is there")

// Client asks one Envoy. It is safe for concurrent use.
type Client struct{ http *http.Client }

// New asks at the admin socket of that path.
func New(socket string) *Client {
	var d net.Dialer
	return &Client{http: &http.Client{Transport: &http.Transport{
		MaxIdleConns: 2, IdleConnTimeout: time.Minute, DisableCompression: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// WindDown has Envoy end each connection with the next answer that it gives on it: HTTP/1 by
// Connection: close, HTTP/2 by GOAWAY. New connections are still accepted, and treated
// alike. It is what failing Envoy's own health check does, which is the one way that takes
// effect at once whatever drain time and strategy Envoy was started with, and that Revive
// can take back. Asking again changes nothing.
func (c *Client) WindDown(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodPost, "/healthcheck/fail")
	return err
}

// Revive takes WindDown back.
func (c *Client) Revive(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodPost, "/healthcheck/ok")
	return err
}

// DrainListeners has Envoy close its listeners once those who come late had their time, and end
// each connection as WindDown does. It cannot be taken back.
func (c *Client) DrainListeners(ctx context.Context) error {
	_, err := c.ask(ctx, http.MethodPost, "/drain_listeners?graceful")
	return err
}

// Connections is how many connections of clients there are.
func (c *Client) Connections(ctx context.Context) (int, error) {
	return c.sum(ctx, "downstream_cx_active", ofListener)
}

// Requests is how many requests of clients are under way.
func (c *Client) Requests(ctx context.Context) (int, error) {
	return c.sum(ctx, "downstream_rq_active", func(name string) bool { return !strings.HasPrefix(name, "http.admin.") })
}

// sum adds up those gauges whose names end in a word and are meant.
func (c *Client) sum(ctx context.Context, word string, meant func(name string) bool) (int, error) {
	text, err := c.ask(ctx, http.MethodGet, "/stats?filter="+word+"$")
	if err != nil {
		return 0, err
	}
	sum := 0
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		name, value, found := strings.Cut(lines.Text(), ": ")
		if !found || !meant(name) {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, fmt.Errorf("ask envoy's admin: %s: %w", name, err)
		}
		sum += n
	}
	return sum, lines.Err()
}

// Counters is those counters and gauges that are not 0 and whose names a regular expression
// matches, by name. What has another value than a whole number is left out.
func (c *Client) Counters(ctx context.Context, filter string) (map[string]uint64, error) {
	text, err := c.ask(ctx, http.MethodGet, "/stats?usedonly&filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil && n > 0 {
			out[name] = n
		}
	}
	return out, nil
}

// ofListener tells the gauge of a listener from those of its workers, of the admin
// interface, and of what is above the connection.
func ofListener(name string) bool {
	return strings.HasPrefix(name, "listener.") && !strings.HasPrefix(name, "listener.admin.") && !strings.Contains(name, ".worker_")
}

// Prometheus writes all statistics in Prometheus' text format into w, at most limit bytes
// of whole lines. It reports whether that was all.
func (c *Client) Prometheus(ctx context.Context, w *bytes.Buffer, limit int64) (whole bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, statsDeadline)
	defer cancel()
	body, err := c.open(ctx, http.MethodGet, "/stats/prometheus")
	if err != nil {
		return false, err
	}
	defer body.Close()
	begin := w.Len()
	n, err := io.Copy(w, io.LimitReader(body, limit+1))
	if err != nil {
		w.Truncate(begin)
		return false, fmt.Errorf("ask envoy's admin: statistics: %w", err)
	}
	if n > limit {
		w.Truncate(begin + bytes.LastIndexByte(w.Bytes()[begin:begin+int(limit)], '\n') + 1)
	}
	return n <= limit, nil
}

func (c *Client) ask(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	body, err := c.open(ctx, method, path)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask envoy's admin: %s: %w", path, err)
	case len(text) > maxAnswer:
		return nil, fmt.Errorf("ask envoy's admin: %s: more than %d bytes", path, maxAnswer)
	}
	return text, nil
}

func (c *Client) open(ctx context.Context, method, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return nil, fmt.Errorf("ask envoy's admin: %w", err)
	}
	resp, err := c.http.Do(req)
	switch {
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("ask envoy's admin: %s: %w", path, ErrAbsent)
	case err != nil:
		return nil, fmt.Errorf("ask envoy's admin: %s: %w", path, err)
	case resp.StatusCode != http.StatusOK:
		_ = resp.Body.Close()
		return nil, fmt.Errorf("ask envoy's admin: %s: %s", path, resp.Status)
	}
	return resp.Body, nil
}
