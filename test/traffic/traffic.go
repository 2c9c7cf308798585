// Package traffic is clients that ask all the time and count every answer, so that a test can
// say that nothing was lost while something else was done. They are clients as there are
// many: some keep a connection, some make a new one each time, some speak HTTP/2 in plain text, some
// WebSocket. Like most, they ask again where a kept connection turns out to be closed before
// anything of an answer came.
package traffic

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is how a client speaks.
type Kind string

// The kinds of clients.
const (
	KeepAlive Kind = "HTTP/1.1, kept alive"
	Fresh     Kind = "HTTP/1.1, a connection each"
	HTTP2     Kind = "HTTP/2"
	WebSocket Kind = "WebSocket"
	// Once is a client that never asks again: its requests are not such as may be repeated.
	Once Kind = "HTTP/1.1, kept alive, asked once"
)

// Kinds is those that ask again.
var Kinds = []Kind{KeepAlive, Fresh, HTTP2, WebSocket}

const (
	// pace is the time between two questions of a client; a pause, if an answer took longer.
	pace = 10 * time.Millisecond
	// each is how many clients of a kind there are: one server of several may get none of one's.
	each = 2
	// patience is for one answer. It bounds how long Stop takes.
	patience = 15 * time.Second
	// maxTold bounds how many losses are told one by one.
	maxTold = 20
)

// Flow is clients at work.
type Flow struct {
	stop context.CancelFunc
	work sync.WaitGroup

	mu     sync.Mutex // guards what follows
	counts map[Kind]int
	lost   []string
	losses int
}

// Start has clients of these kinds, Kinds if none is given, ask the address, host:port, for the
// host until Stop, or the test's end. It returns when each has had an answer that was right.
func Start(t testing.TB, address, host string, kinds ...Kind) *Flow {
	t.Helper()
	if len(kinds) == 0 {
		kinds = Kinds
	}
	ctx, cancel := context.WithCancel(t.Context())
	f := &Flow{stop: cancel, counts: map[Kind]int{}}
	t.Cleanup(func() { cancel(); f.work.Wait() })
	for _, k := range kinds {
		for range each {
			c := client{kind: k, address: address, host: host}
			if err := c.ask(ctx); err != nil {
				t.Fatalf("%s: before anything was done: %v", k, err)
			}
			f.work.Go(func() { f.run(ctx, c) })
		}
	}
	return f
}

// run asks until ctx is done. What is under way then is not counted.
func (f *Flow) run(ctx context.Context, c client) {
	defer c.close()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		began := time.Now()
		err := c.ask(ctx)
		if ctx.Err() != nil {
			return
		}
		f.note(c.kind, began, err)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (f *Flow) note(k Kind, began time.Time, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[k]++
	if err == nil {
		return
	}
	if f.losses++; len(f.lost) < maxTold {
		f.lost = append(f.lost, fmt.Sprintf("%s %s, after %s: %v", began.UTC().Format("15:04:05.000"), k, time.Since(began).Round(time.Millisecond), err))
	}
}

// Counts is how many answers each kind has had, the wrong ones too.
func (f *Flow) Counts() map[Kind]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.counts)
}

// Losses is how many answers were missing or wrong.
func (f *Flow) Losses() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.losses
}

// Stop ends the clients, and fails the test if an answer was missing or wrong, or if there were
// none.
func (f *Flow) Stop(t testing.TB) {
	t.Helper()
	f.stop()
	f.work.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.losses > 0 {
		t.Errorf("%d answers were lost:\n%s", f.losses, strings.Join(f.lost, "\n"))
	}
	for _, k := range slices.Sorted(maps.Keys(f.counts)) {
		t.Logf("%s: %d answers", k, f.counts[k])
	}
	if len(f.counts) == 0 {
		t.Error("nobody asked anything")
	}
}

// client asks one question at a time.
type client struct {
	kind          Kind
	address, host string
	http          *http.Client
}

func (c *client) close() {
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
}

// ask is one request, or one short session of WebSocket. Its error is whatever is not 200 with
// an answer that is whole.
func (c *client) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if c.kind == WebSocket {
		return session(ctx, c.address, c.host)
	}
	if c.http == nil {
		transport := &http.Transport{DisableKeepAlives: c.kind == Fresh, Protocols: &http.Protocols{}}
		transport.DialContext = (&net.Dialer{}).DialContext
		transport.Protocols.SetHTTP1(c.kind != HTTP2)
		transport.Protocols.SetUnencryptedHTTP2(c.kind == HTTP2)
		c.http = &http.Client{Transport: transport}
	}
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if c.kind == Once {
		method, body = http.MethodPost, strings.NewReader("once")
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.address+"/", body)
	if err != nil {
		return err
	}
	req.Host = c.host
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("answered %s: %.200s", resp.Status, text)
	}
	return nil
}
