//go:build component

package protocol_test

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A request that two parsers may cut differently must reach no backend, whole or in parts.
func TestRequestsOfTwoReadingsAreRefused(t *testing.T) {
	const host = "Host: smuggle.example.com\r\n"
	const inner = "GET /smuggled HTTP/1.1\r\nHost: smuggle.example.com\r\n\r\n"
	cases := map[string]string{
		"a length and chunks":                  "POST / HTTP/1.1\r\n" + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"chunks and a length":                  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n" + inner,
		"two lengths that differ":              "POST / HTTP/1.1\r\n" + host + "Content-Length: 0\r\nContent-Length: 50\r\n\r\n" + inner,
		"a list of lengths":                    "POST / HTTP/1.1\r\n" + host + "Content-Length: 0, 50\r\n\r\n" + inner,
		"a length with a sign":                 "POST / HTTP/1.1\r\n" + host + "Content-Length: +50\r\n\r\n" + inner,
		"a length below zero":                  "POST / HTTP/1.1\r\n" + host + "Content-Length: -1\r\n\r\n" + inner,
		"a length in other digits":             "POST / HTTP/1.1\r\n" + host + "Content-Length: 0x32\r\n\r\n" + inner,
		"a length that is too large":           "POST / HTTP/1.1\r\n" + host + "Content-Length: 18446744073709551617\r\n\r\n" + inner,
		"a space before the colon of a length": "POST / HTTP/1.1\r\n" + host + "Content-Length : 50\r\n\r\n" + inner,
		"a space before the colon of chunks":   "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"an encoding that is not known":        "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"chunks before another encoding":       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		"chunks twice":                         "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + inner,
		"chunks with a tab before":             "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n" + inner,
		"a size of a chunk that is too large":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n" + inner,
		"a size of a chunk that is none":       "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n" + inner,
		"a chunk that is longer than it says":  "POST / HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n2\r\nhello\r\n0\r\n\r\n" + inner,
		"a zero byte in a value":               "GET / HTTP/1.1\r\n" + host + "X-A: a\x00b\r\n\r\n",
		"a zero byte in a name":                "GET / HTTP/1.1\r\n" + host + "X\x00A: b\r\n\r\n",
		"a name with a space":                  "GET / HTTP/1.1\r\n" + host + "X A: b\r\n\r\n",
		"a line without a colon":               "GET / HTTP/1.1\r\n" + host + "nonsense\r\n\r\n",
		"no name":                              "GET / HTTP/1.1\r\n" + host + ": b\r\n\r\n",
		"a space before the first header":      "GET / HTTP/1.1\r\n X-A: b\r\n" + host + "\r\n",
		"chunks in HTTP/1.0":                   "POST / HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + inner,
	}
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		w.route(t, "smuggle.example.com", b.port, "")
		for name, request := range cases {
			t.Run(name, func(t *testing.T) {
				before := len(b.seen())
				c, r := w.dial(t)
				if _, err := io.WriteString(c, request); err != nil {
					return // closed: refused
				}
				resp, _, err := answer(r, http.MethodPost)
				if err == nil && resp.StatusCode < 400 {
					t.Errorf("answered %s, want a refusal; the backend saw\n%q", resp.Status, b.seen()[before:])
				}
				if err == nil {
					_ = c.(*net.TCPConn).CloseWrite() // nothing more comes: what is to be answered is answered now
					if second, _, err := answer(r, http.MethodGet); err == nil && second.StatusCode < 400 {
						t.Errorf("what followed was answered: %s", second.Status)
					}
				}
				if seen := b.seen()[before:]; strings.Contains(seen, "smuggled") {
					t.Errorf("the backend saw\n%s", seen)
				}
			})
		}
	})
}

// Bytes that clients send and that have one reading only, however odd, are read so.
func TestWhatHasOneReadingIsServed(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		w.route(t, "odd.example.com", startEcho(t).Port, "")
		for name, request := range map[string]string{
			"spaces around a value":       "GET / HTTP/1.1\r\nHost:   odd.example.com  \r\n\r\n",
			"chunks in other letter case": "POST / HTTP/1.1\r\nHost: odd.example.com\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
			"an extension of a chunk":     "POST / HTTP/1.1\r\nHost: odd.example.com\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\nok\r\n0\r\n\r\n",
			"a later minor version":       "GET / HTTP/1.7\r\nHost: odd.example.com\r\n\r\n",
			"an empty line before":        "\r\nGET / HTTP/1.1\r\nHost: odd.example.com\r\n\r\n",
		} {
			resp, body, err := w.say(t, request)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %v %v %s", name, resp, err, body)
			}
		}
	})
}

// RFC 9112 has a receiver refuse these, or read them in a way of its own: whichever it
// is, the backend sees one header, which cannot be read as two.
func TestLinesThatGoOnBecomeOneHeader(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		w.route(t, "line.example.com", b.port, "")
		for name, headers := range map[string]string{
			"the next line begins with a space": "X-A: b\r\n X-Forged: c\r\n",
			"the next line begins with a tab":   "X-A: b\r\n\tX-Forged: c\r\n",
			"a carriage return alone":           "X-A: b\rX-Forged: c\r\n",
		} {
			if _, _, err := w.say(t, "GET / HTTP/1.1\r\nHost: line.example.com\r\n"+headers+"\r\n"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if seen := b.seen(); strings.ContainsAny(strings.ReplaceAll(seen, "\r\n", ""), "\r\n") || strings.Contains(strings.ToLower(seen), "\r\nx-forged") {
			t.Errorf("the backend saw\n%q", seen)
		}
	})
}

func TestHeadersThatAreTooLargeAreRefused(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		b := startRaw(t, answerAll("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"))
		w.route(t, "large.example.com", b.port, "")
		for name, headers := range map[string]string{
			"one large header": "X-A: " + strings.Repeat("a", 1<<20) + "\r\n",
			"many headers":     strings.Repeat("X-A: a\r\n", 20000),
		} {
			c, r := w.dial(t)
			_, err := io.WriteString(c, "GET /large HTTP/1.1\r\nHost: large.example.com\r\n"+headers+"\r\n")
			if err != nil {
				continue // closed: refused
			}
			resp, _, err := answer(r, http.MethodGet)
			if err == nil && resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("%s: %s, want 431", name, resp.Status)
			}
		}
		if seen := b.seen(); seen != "" {
			t.Errorf("the backend saw %d bytes", len(seen))
		}
	})
}
