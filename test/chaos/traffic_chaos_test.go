//go:build cluster

package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/traffic"
)

const (
	shop    = "shop.example.com"
	pace    = 50 * time.Millisecond // between messages of a WebSocket
	timeout = 15 * time.Second      // after which an answer is lost
	// minimum is how many answers there are of each kind of client, or there was no traffic: a
	// short WebSocket takes two seconds, and some faults are over in five.
	minimum = 2
)

// load is clients of one Gateway that ask all the time, and WebSockets that are held open.
type load struct {
	flow  *traffic.Flow
	held  []*held
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// send starts traffic to the address, which ends with check or with the test.
func send(t *testing.T, address string) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{flow: traffic.Start(t, address, shop, append(slices.Clone(traffic.Kinds), traffic.Once)...), stop: cancel}
	for range 2 {
		h := &held{address: address}
		l.held = append(l.held, h)
		l.ended.Go(func() { h.run(ctx) })
	}
	t.Cleanup(func() { cancel(); l.ended.Wait() })
	return l
}

// check ends the traffic. The test fails for everything that was asked and not answered;
// cuts is how many of the WebSockets may have been ended.
func (l *load) check(t *testing.T, cuts int) {
	t.Helper()
	l.stop()
	l.ended.Wait()
	l.flow.Stop(t)
	for kind, n := range l.flow.Counts() {
		if n < minimum {
			t.Errorf("%s: %d answers are no traffic", kind, n)
		}
	}
	cut := 0
	for _, h := range l.held {
		t.Logf("a held WebSocket: %d answers, ended %d times %v", h.answers, h.cuts, h.last)
		if cut += h.cuts; h.lost != nil {
			t.Errorf("a held WebSocket lost an answer: %v", h.lost)
		}
		if h.answers < minimum {
			t.Errorf("a held WebSocket: %d answers are no traffic", h.answers)
		}
	}
	if cut > cuts {
		t.Errorf("held WebSockets were ended %d times, at most %d may be", cut, cuts)
	}
}

// held is a WebSocket for as long as it lasts, and then another. It is not known of a
// message on the way whether it was lost with the connection; what is counted is the
// connection.
type held struct {
	address string

	// Of run, until it has returned.
	answers, cuts int
	last          error // by which one was cut
	lost          error // the first answer that did not come, came wrong, or was no WebSocket
}

// run ends with ctx, or with the first loss.
func (h *held) run(ctx context.Context) {
	for ctx.Err() == nil && h.lost == nil {
		conn, r, err := h.open(ctx)
		if err != nil {
			if ctx.Err() == nil {
				h.lost = fmt.Errorf("%s: open: %w", time.Now().UTC().Format("15:04:05.000"), err)
			}
			return
		}
		h.talk(ctx, conn, r)
		_ = conn.Close()
	}
}

func (h *held) open(ctx context.Context) (net.Conn, *bufio.Reader, error) {
	conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp", h.address)
	if err != nil {
		return nil, nil, err
	}
	_ = conn.SetDeadline(time.Now().Add(timeout))
	r := bufio.NewReader(conn)
	resp, err := echo.Upgrade(conn, r, "GET / HTTP/1.1\r\nhost: "+shop+"\r\n")
	if err == nil {
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols {
			err = errors.New(resp.Status)
		}
	}
	if err == nil {
		_, err = echo.ReadText(r) // what the server saw of the request
	}
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return conn, r, nil
}

// talk sends messages until the connection is ended or ctx is done.
func (h *held) talk(ctx context.Context, conn net.Conn, r *bufio.Reader) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = conn.SetDeadline(time.Now().Add(timeout))
		text, got := strconv.Itoa(h.answers), ""
		err := echo.WriteText(conn, text, true)
		if err == nil {
			got, err = echo.ReadText(r)
		}
		late, isNet := errors.AsType[net.Error](err)
		switch {
		case isNet && late.Timeout():
			h.lost = err
			return
		case err != nil:
			h.cuts, h.last = h.cuts+1, err
			return
		case got != text:
			h.lost = fmt.Errorf("%q came back as %q", text, got)
			return
		}
		h.answers++
	}
}
