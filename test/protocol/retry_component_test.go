//go:build component

package protocol_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"aether.io/aether/internal/test/echo"
)

// spread serves a host by backends at several ports, which are endpoints of one Service.
func spread(host, appProtocol string, ports ...int) string {
	text := manifests(host, ports[0], appProtocol)
	for i, port := range ports[1:] {
		text += fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[3]d}]
endpoints: [{addresses: [127.0.0.1]}]
`, strings.ReplaceAll(host, ".", "-"), i, port)
	}
	return text
}

// bound is a socket with a port of its own, which ends with the test.
func bound(t *testing.T) (fd, port int) {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, at.(*syscall.SockaddrInet4).Port
}

// refusing is a port that refuses connections, as that of a pod that has gone does.
func refusing(t *testing.T) int {
	t.Helper()
	_, port := bound(t)
	return port
}

// silent is a port at which connections are not answered at all, as at a node that has
// gone: the queue of a listener that nobody serves is full.
func silent(t *testing.T) int {
	t.Helper()
	fd, port := bound(t)
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return port
}

func TestAnEndpointThatHasGoneCostsNoRequest(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		for name, appProtocol := range map[string]string{"http1": "", "h2c": "kubernetes.io/h2c"} {
			host := name + ".gone.example.com"
			w.apply(t, host+".yaml", spread(host, appProtocol, startEcho(t).Port, refusing(t), refusing(t)))
			for i := range 100 {
				size := i % 2 * 16 << 10
				resp, got := w.upload(t, host, size)
				if resp.StatusCode != http.StatusOK || got != size {
					t.Fatalf("%s, request %d: %s, the backend saw %d bytes of %d", name, i, resp.Status, got, size)
				}
			}
		}
	})
}

// upload sends a body and returns how much of it an echo says that it saw.
func (w *world) upload(t *testing.T, host string, size int) (resp *http.Response, got int) {
	t.Helper()
	resp, body, err := w.say(t, fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", host, size, strings.Repeat("x", size)))
	if err != nil {
		t.Fatal(err)
	}
	var seen echo.Seen
	if resp.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(body), &seen); err != nil {
			t.Fatal(err)
		}
	}
	return resp, int(seen.BodyBytes)
}

// Of a large body too little is kept to send it again once it comes: it is whole or not
// at all, and that it could not be sent is no other error than for a small one.
func TestALargeRequestIsWholeOrRefused(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		const host, size = "large.gone.example.com", 1 << 20
		w.apply(t, host+".yaml", spread(host, "", startEcho(t).Port, refusing(t), refusing(t)))
		for i := range 50 {
			resp, got := w.upload(t, host, size)
			if resp.StatusCode != http.StatusServiceUnavailable && (resp.StatusCode != http.StatusOK || got != size) {
				t.Errorf("request %d: %s, the backend saw %d bytes of %d", i, resp.Status, got, size)
			}
		}
	})
}

func TestWhatReachedABackendIsNotSentAgain(t *testing.T) {
	breaks := map[string]func(net.Conn, *bufio.Reader){
		"with the first byte": func(_ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() },
		"after the request": func(_ net.Conn, r *bufio.Reader) {
			if req, err := http.ReadRequest(r); err == nil {
				_, _ = io.Copy(io.Discard, req.Body)
			}
		},
		"in its answer": func(c net.Conn, r *bufio.Reader) {
			if _, err := http.ReadRequest(r); err == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 2")
			}
		},
	}
	inBothModes(t, func(t *testing.T, w *world) {
		for name, serve := range breaks {
			for _, request := range []string{"GET /%d HTTP/1.1\r\nHost: %s\r\n\r\n", "POST /%d HTTP/1.1\r\nHost: %s\r\nContent-Length: 2\r\n\r\nok"} {
				method, _, _ := strings.Cut(request, " ")
				host := strings.ToLower(method) + "." + strings.ReplaceAll(name, " ", "-") + ".example.com"
				one, other := startRaw(t, serve), startRaw(t, serve)
				w.apply(t, host+".yaml", spread(host, "", one.port, other.port))
				const times = 10
				for i := range times {
					if resp, _, err := w.say(t, fmt.Sprintf(request, i, host)); err != nil || resp.StatusCode < 500 {
						t.Errorf("%s %s: %v, %v, want an error", method, name, resp, err)
					}
				}
				if n := strings.Count(one.seen()+other.seen(), method+" /"); n > times {
					t.Errorf("%s %s: backends saw %d requests, %d were sent", method, name, n, times)
				}
			}
		}
	})
}

// refuse is an HTTP/2 backend that takes no stream.
func refuse(c net.Conn, r *bufio.Reader) {
	if _, err := io.ReadFull(r, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, r)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if f.WriteSettings() != nil {
		return
	}
	// Exits: the other side closes.
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			err = f.WriteRSTStream(frame.StreamID, http2.ErrCodeRefusedStream)
		}
		if err != nil {
			return
		}
	}
}

func TestARefusedStreamIsSentToAnotherEndpoint(t *testing.T) {
	inBothModes(t, func(t *testing.T, w *world) {
		const host = "refused.example.com"
		full := startRaw(t, refuse)
		w.apply(t, host+".yaml", spread(host, "kubernetes.io/h2c", startEcho(t).Port, full.port))
		for i := range 50 {
			resp, body, err := w.say(t, "POST / HTTP/1.1\r\nHost: "+host+"\r\nContent-Length: 5\r\n\r\nhello")
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(body, `"hello"`) {
				t.Fatalf("request %d: %v %s %v", i, resp, body, err)
			}
		}
		if full.seen() == "" {
			t.Error("no request came to the endpoint that refuses it")
		}
	})
}

// The limit is less than what one try may take to connect.
func TestAllTriesTogetherHaveTheRequestsTimeLimit(t *testing.T) {
	for _, limit := range []string{"request", "backendRequest"} {
		t.Run(limit, func(t *testing.T) {
			inBothModes(t, func(t *testing.T, w *world) {
				host := strings.ToLower(limit) + ".limit.example.com"
				text := spread(host, "", silent(t), silent(t))
				w.apply(t, host+".yaml", strings.Replace(text, "rules: [{", "rules: [{timeouts: {"+limit+": 300ms}, ", 1))
				resp, _, err := w.say(t, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
				if err != nil || resp.StatusCode != http.StatusGatewayTimeout {
					t.Errorf("answered %v, %v, want 504", resp, err)
				}
			})
		})
	}
}
