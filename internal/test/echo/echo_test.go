package echo_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"aether.io/aether/internal/test/echo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a backend that borrows its certificate from httptest.
func start(t *testing.T) (*echo.Server, *http.Transport) {
	t.Helper()
	lender := httptest.NewTLSServer(nil)
	certificates, trust := lender.TLS.Certificates, lender.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	lender.Close()
	s, err := echo.Start(t.Context(), echo.Config{Name: "shop", TLS: &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12}})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: trust, ServerName: "example.com", MinVersion: tls.VersionTLS12},
		Protocols:       &http.Protocols{},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, fmt.Sprintf("127.0.0.1:%d", s.Port))
		},
	}
	t.Cleanup(func() { transport.CloseIdleConnections(); s.Close() })
	return s, transport
}

func TestOnePortSpeaksEveryProtocolAndSaysWhatItSaw(t *testing.T) {
	for name, tc := range map[string]struct {
		scheme, protocol string
		set              func(*http.Protocols)
	}{
		"HTTP/1.1 in plain text": {"http", "HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
		"HTTP/2 in plain text":   {"http", "HTTP/2.0", func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }},
		"HTTP/1.1 over TLS":      {"https", "HTTP/1.1", func(p *http.Protocols) { p.SetHTTP1(true) }},
		"HTTP/2 over TLS":        {"https", "HTTP/2.0", func(p *http.Protocols) { p.SetHTTP2(true) }},
	} {
		t.Run(name, func(t *testing.T) {
			s, transport := start(t)
			tc.set(transport.Protocols)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, tc.scheme+"://example.com/a%2Fb?c=d", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Echo-Id", "one")
			req.Header.Set("Echo-Status", "418")
			req.Header.Set("Echo-Trailer", "x-end: yes")
			resp, err := transport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			var seen echo.Seen
			if err := json.NewDecoder(resp.Body).Decode(&seen); err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusTeapot || resp.Trailer.Get("x-end") != "yes" || resp.Header.Get(echo.BackendHeader) != "shop" {
				t.Errorf("answered %s, trailers %v, headers %v", resp.Status, resp.Trailer, resp.Header)
			}
			if seen.Protocol != tc.protocol || seen.Path != "/a%2Fb?c=d" || seen.Body != "hello" || seen.BodyBytes != 5 || (seen.TLS != nil) != (tc.scheme == "https") {
				t.Errorf("saw %+v", seen)
			}
			if got := s.Of("one"); len(got) != 1 || got[0].Path != seen.Path {
				t.Errorf("remembers %+v", got)
			}
		})
	}
}

func TestAFailureIsForTheFirstRequestsOfAnIdOnly(t *testing.T) {
	_, transport := start(t)
	transport.Protocols.SetHTTP1(true)
	var got []int
	for range 3 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://example.com/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Echo-Id", "one")
		req.Header.Set("Echo-Fail", "2")
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		got = append(got, resp.StatusCode)
	}
	if fmt.Sprint(got) != "[503 503 200]" {
		t.Errorf("answered %v", got)
	}
}

func TestAWebSocketSaysWhatItSawThenRepeatsWhatItIsSent(t *testing.T) {
	s, _ := start(t)
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", s.Port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := bufio.NewReader(c)
	resp, err := echo.Upgrade(c, r, "GET /live HTTP/1.1\r\nhost: example.com\r\n")
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp.Status)
	}
	first, err := echo.ReadText(r)
	if err != nil || !strings.Contains(first, `"path":"/live"`) {
		t.Fatalf("first message %q, %v", first, err)
	}
	for _, text := range []string{"", "hello", strings.Repeat("x", 200), strings.Repeat("y", 70000)} {
		if err := echo.WriteText(c, text, true); err != nil {
			t.Fatal(err)
		}
		if got, err := echo.ReadText(r); err != nil || got != text {
			t.Fatalf("%d bytes came back as %d, %v", len(text), len(got), err)
		}
	}
}
