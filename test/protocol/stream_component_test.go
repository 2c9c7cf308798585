//go:build component

package protocol_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/test/echo"
)

const (
	large = 64 << 20
	piece = 64 << 10
	// most is by how much Envoy may grow while it carries large: its buffers of one
	// stream are 1 MiB on each side, the rest is what its allocator and threads take.
	most = 24 << 20
)

// peak is the most memory that the instance's Envoy has had, in bytes.
func (w *world) peak(t *testing.T) int {
	t.Helper()
	pid, err := w.in.PID("envoy")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("no VmHWM in\n%s", text)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

func TestALargeBodyGoesUpAndDownInBoundedMemory(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		l := serveHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				return
			}
			rw.Header().Set("x-received", strconv.FormatInt(n, 10))
			rw.Header().Set("content-length", strconv.Itoa(large))
			zeros := make([]byte, piece)
			for range large / piece {
				if _, err := rw.Write(zeros); err != nil {
					return
				}
			}
		})
		w.route(t, "bulk.example.com", l, "")
		before := w.peak(t)
		c, r := w.dial(t)
		go func() {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: bulk.example.com\r\nContent-Length: %d\r\n\r\n", large)
			zeros := make([]byte, piece)
			for range large / piece {
				if _, err := c.Write(zeros); err != nil {
					return
				}
			}
		}()
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		if err != nil || n != large || resp.Header.Get("x-received") != strconv.Itoa(large) {
			t.Fatalf("%d bytes down, %s up, %v", n, resp.Header.Get("x-received"), err)
		}
		if grown := w.peak(t) - before; grown > most {
			t.Errorf("Envoy grew by %d MiB, want %d at most", grown>>20, most>>20)
		}
	})
}

// serveHTTP is a backend with a handler of the test's own; it returns its port.
func serveHTTP(t *testing.T, h http.HandlerFunc) int {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }() // ends with Close
	t.Cleanup(func() { _ = srv.Close(); <-done })
	return l.Addr().(*net.TCPAddr).Port
}

// A piece must arrive before the next is sent: nothing waits for a body to be whole.
func TestBodiesAreStreamedPieceByPieceBothWays(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		l := serveHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
			flush := http.NewResponseController(rw)
			_ = flush.EnableFullDuplex()
			buf := make([]byte, 16)
			// Exits: the request's body ends.
			for {
				n, err := r.Body.Read(buf)
				if n > 0 {
					_, _ = rw.Write(buf[:n])
					_ = flush.Flush()
				}
				if err != nil {
					return
				}
			}
		})
		w.route(t, "stream.example.com", l, "")
		c, r := w.dial(t)
		if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: stream.example.com\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil) // its body is not closed, which would wait for the rest of it
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		for i := range 20 {
			if _, err := io.ReadFull(resp.Body, one); err != nil || one[0] != 'a'+byte(i) {
				t.Fatalf("piece %d: %q, %v", i, one, err)
			}
			if _, err := fmt.Fprintf(c, "1\r\n%c\r\n", 'b'+byte(i)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// Envoy's own limit for an answer is 15 seconds, which no route of ours inherits.
func TestAnAnswerMayTakeLongerThanEnvoysDefault(t *testing.T) {
	w := worlds["PerHost"]
	w.route(t, "poll.example.com", startEcho(t).Port, "")
	resp, body, err := w.say(t, "GET / HTTP/1.1\r\nHost: poll.example.com\r\nEcho-Delay: 16s\r\n\r\n")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("answered %v %s %v", resp, body, err)
	}
}

// edits is how many changes of routes a stream has to outlive.
const edits = 100

// edit changes the route of a host: its answers have another header.
func (w *world) edit(t *testing.T, host string, port, n int) {
	t.Helper()
	filter := fmt.Sprintf(`rules: [{filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-edit, value: "%d"}]}}], `, n)
	w.apply(t, host+".yaml", strings.Replace(manifests(host, port, ""), "rules: [{", filter, 1))
}

func TestAWebSocketOutlivesEditsOfItsRoute(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		port := startEcho(t).Port
		w.route(t, "live.example.com", port, "")
		c, r := w.dial(t)
		_ = c.SetDeadline(time.Time{})
		resp, err := echo.Upgrade(c, r, "GET / HTTP/1.1\r\nhost: live.example.com\r\n")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp.Status)
		}
		if _, err := echo.ReadText(r); err != nil {
			t.Fatal(err)
		}
		for i := range edits {
			w.edit(t, "live.example.com", port, i)
			text := strconv.Itoa(i)
			if err := echo.WriteText(c, text, true); err != nil {
				t.Fatalf("after edit %d: %v", i, err)
			}
			if got, err := echo.ReadText(r); err != nil || got != text {
				t.Fatalf("after edit %d: %q, %v", i, got, err)
			}
		}
		if resp, _, err := w.say(t, "GET / HTTP/1.1\r\nHost: live.example.com\r\n\r\n"); err != nil || resp.Header.Get("x-edit") != strconv.Itoa(edits-1) {
			t.Errorf("the last edit is not live: %v, %v", resp, err)
		}
	})
}

func TestADownloadOutlivesEditsOfItsRoute(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		next := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		port := serveHTTP(t, func(rw http.ResponseWriter, _ *http.Request) {
			flush := http.NewResponseController(rw)
			_ = flush.Flush()
			for i := range edits / 4 {
				select {
				case <-next:
				case <-ctx.Done():
					return
				}
				fmt.Fprintf(rw, "%d\n", i)
				_ = flush.Flush()
			}
		})
		w.route(t, "download.example.com", port, "")
		c, r := w.dial(t)
		_ = c.SetDeadline(time.Time{})
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: download.example.com\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(r, nil) // its body is not closed, which would wait for the rest of it
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(resp.Body)
		for i := range edits / 4 {
			if i == edits/8 { // half way the route goes, and comes back
				w.apply(t, "download.example.com.yaml", manifests("elsewhere.example.com", port, ""))
				w.route(t, "download.example.com", port, "")
			} else {
				w.edit(t, "download.example.com", port, i)
			}
			next <- struct{}{}
			if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(i) {
				t.Fatalf("after edit %d: %q, %v", i, line, err)
			}
		}
		if rest, err := io.ReadAll(lines); err != nil || len(rest) > 0 {
			t.Errorf("at the end: %q, %v", rest, err)
		}
	})
}
