//go:build component

package protocol_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// session is an HTTP/2 connection in plain text, with prior knowledge.
type session struct {
	net.Conn
	framer *http2.Framer
	buf    bytes.Buffer
	enc    *hpack.Encoder
}

func (w *world) session(t *testing.T) *session {
	t.Helper()
	c, r := w.dial(t)
	s := &session{Conn: c, framer: http2.NewFramer(c, r)}
	s.framer.AllowIllegalWrites = true
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	s.enc = hpack.NewEncoder(&s.buf)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := s.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return s
}

// send opens a stream with those fields, in that order.
func (s *session) send(id uint32, end bool, fields ...string) error {
	s.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		if err := s.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return err
		}
	}
	return s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: s.buf.Bytes(), EndStream: end, EndHeaders: true})
}

var errReset = errors.New("reset")

// status waits for a stream's answer. The error is errReset if the stream or the
// connection was ended in its place.
func (s *session) status(id uint32) (string, error) {
	for {
		f, err := s.framer.ReadFrame()
		if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) {
			return "", errReset
		}
		if err != nil {
			return "", err
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamID == id {
				return f.PseudoValue("status"), nil
			}
		case *http2.RSTStreamFrame:
			if f.StreamID == id {
				return "", errReset
			}
		case *http2.GoAwayFrame:
			return "", errReset
		case *http2.SettingsFrame:
			if !f.IsAck() {
				if err := s.framer.WriteSettingsAck(); err != nil {
					return "", err
				}
			}
		}
	}
}

func TestHTTP2ThatHTTP1WouldReadOtherwiseIsRefused(t *testing.T) {
	good := []string{":method", "GET", ":scheme", "http", ":authority", "two.example.com", ":path", "/"}
	with := func(fields ...string) []string { return append(append([]string{}, good...), fields...) }
	replaced := func(name, value string) []string {
		out := append([]string{}, good...)
		for i := 0; i < len(out); i += 2 {
			if out[i] == name {
				out[i+1] = value
			}
		}
		return out
	}
	cases := map[string][]string{
		"a line end in a value":         with("x-a", "b\r\nGET /smuggled HTTP/1.1"),
		"a line feed in a value":        with("x-a", "b\nx-c: d"),
		"a zero byte in a value":        with("x-a", "b\x00c"),
		"a name in upper case":          with("X-A", "b"),
		"a name with a colon":           with("x-a: b\r\nx-c", "d"),
		"a name with a space":           with("x a", "b"),
		"an empty name":                 with("", "b"),
		"chunks":                        with("transfer-encoding", "chunked"),
		"a header of the connection":    with("connection", "x-a"),
		"a length that is not kept":     with("content-length", "5"),
		"a pseudo-header that is none":  with(":nonsense", "x"),
		"a pseudo-header after another": with("x-a", "b", ":path", "/other"),
		"a line end in the path":        replaced(":path", "/ HTTP/1.1\r\nx-a: b"),
		"a space in the path":           replaced(":path", "/a b"),
		"no path":                       replaced(":path", ""),
		"a path that is none":           replaced(":path", "a"),
		"a line end in the host":        replaced(":authority", "two.example.com\r\nx-a: b"),
		"a line end in the method":      replaced(":method", "GET / HTTP/1.1\r\nx-a: b\r\n"),
		"no method":                     good[2:],
	}
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		w.route(t, "two.example.com", b.port, "")
		s := w.session(t)
		if err := s.send(1, true, good...); err != nil {
			t.Fatal(err)
		}
		if got, err := s.status(1); err != nil || got != "200" {
			t.Fatalf("a good request: %s, %v", got, err)
		}
		before := len(b.seen())
		sessions := map[string]*session{} // all at once: Envoy takes a second to close a connection
		for name, fields := range cases {
			sessions[name] = w.session(t)
			if err := sessions[name].send(1, true, fields...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for name, s := range sessions {
			if got, err := s.status(1); err == nil && got < "400" || err != nil && !errors.Is(err, errReset) {
				t.Errorf("%s: answered %q, %v, want a refusal", name, got, err)
			}
		}
		if seen := b.seen()[before:]; seen != "" {
			t.Errorf("the backend saw\n%q", seen)
		}
	})
}

func TestManyStreamsShareAConnection(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		const streams = 50
		var all sync.WaitGroup
		all.Add(streams)
		port := serveHTTP(t, func(rw http.ResponseWriter, r *http.Request) {
			all.Done() // none is answered before all have come
			all.Wait()
			fmt.Fprint(rw, r.URL.Path)
		})
		w.route(t, "many.example.com", port, "")
		s := w.session(t)
		for i := range streams {
			if err := s.send(uint32(2*i+1), true, ":method", "GET", ":scheme", "http", ":authority", "many.example.com", ":path", fmt.Sprintf("/%d", i)); err != nil {
				t.Fatal(err)
			}
		}
		answered := map[uint32]bool{}
		for len(answered) < streams {
			f, err := s.framer.ReadFrame()
			if err != nil {
				t.Fatalf("after %d answers: %v", len(answered), err)
			}
			switch f := f.(type) {
			case *http2.MetaHeadersFrame:
				if f.PseudoValue("status") != "200" {
					t.Fatalf("stream %d: %s", f.StreamID, f.PseudoValue("status"))
				}
				answered[f.StreamID] = true
			case *http2.SettingsFrame:
				if !f.IsAck() {
					if err := s.framer.WriteSettingsAck(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
