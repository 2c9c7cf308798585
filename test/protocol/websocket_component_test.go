//go:build component

package protocol_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"aether.io/aether/internal/test/echo"
)

// stream is what a stream of a session brings, in order.
type stream struct {
	*session
	id   uint32
	rest bytes.Buffer
}

// Read returns the data of the stream's next frame, or what is left of it.
func (s *stream) Read(p []byte) (int, error) {
	for s.rest.Len() == 0 {
		f, err := s.framer.ReadFrame()
		if err != nil {
			return 0, err
		}
		switch f := f.(type) {
		case *http2.DataFrame:
			if f.StreamID == s.id {
				s.rest.Write(f.Data())
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			return 0, errReset
		}
	}
	return s.rest.Read(p)
}

// Write sends data on the stream.
func (s *stream) Write(p []byte) (int, error) { return len(p), s.framer.WriteData(s.id, false, p) }

// RFC 8441: the client's HTTP/2 becomes an upgrade of HTTP/1.1 towards the backend.
func TestAWebSocketOverHTTP2IsAnUpgradeForTheBackend(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "socket.example.com", startEcho(t).Port, "")
		s := w.session(t)
		if err := s.send(1, false, ":method", "CONNECT", ":protocol", "websocket", ":scheme", "http", ":authority", "socket.example.com", ":path", "/live",
			"sec-websocket-version", "13"); err != nil {
			t.Fatal(err)
		}
		if got, err := s.status(1); err != nil || got != "200" {
			t.Fatalf("answered %s, %v", got, err)
		}
		c := &stream{session: s, id: 1}
		r := bufio.NewReader(c)
		if first, err := echo.ReadText(r); err != nil || !strings.Contains(first, `"path":"/live"`) || !strings.Contains(first, `"protocol":"HTTP/1.1"`) {
			t.Fatalf("the backend saw %s, %v", first, err)
		}
		for _, text := range []string{"hello", "", strings.Repeat("x", 16000)} {
			if err := echo.WriteText(c, text, true); err != nil {
				t.Fatal(err)
			}
			if got, err := echo.ReadText(r); err != nil || got != text {
				t.Fatalf("%d bytes came back as %d, %v", len(text), len(got), err)
			}
		}
	})
}

// A backend of HTTP/2 that does not say that it has extended CONNECT must not be left
// with half a request; its other requests are served.
func TestAWebSocketToAnHTTP2BackendWithoutThemIsAnError(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		const host = "h2c-socket.example.com"
		w.route(t, host, startEcho(t).Port, "kubernetes.io/h2c")
		c, r := w.dial(t)
		resp, err := echo.Upgrade(c, r, "GET / HTTP/1.1\r\nhost: "+host+"\r\n")
		if err == nil {
			_ = resp.Body.Close()
		}
		if err == nil && resp.StatusCode < 400 || err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("answered %v, %v, want an error", resp, err)
		}
		if resp, _, err := w.say(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("afterwards: %v, %v", resp, err)
		}
	})
}
