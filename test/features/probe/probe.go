// Package probe sends the requests of examples and compares what comes back with what
// they expect. Each request has a connection of its own. HTTP/1 is written byte by byte,
// so that nothing is sent but what the example says.
package probe

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/test/features/example"
)

// limit bounds one request with its connection.
const limit = 20 * time.Second

// Prober sends requests to one instance.
type Prober struct {
	Offset  int // added to listener ports
	Trust   *x509.CertPool
	Clients map[string]*tls.Certificate
}

// Answer is what came back.
type Answer struct {
	Fails       string // one of example's, if there is no answer
	Why         string // of Fails
	Status      int
	Protocol    string
	Headers     http.Header
	Trailers    http.Header
	Body        string
	Certificate string // first name in the one that was shown
}

// Backend is the echo that answered, empty if none did.
func (a Answer) Backend() string { return a.Headers.Get(echo.BackendHeader) }

// Send sends the request once, under an id that backends remember it by.
func (p *Prober) Send(ctx context.Context, r *example.Request, id string) Answer {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var a Answer
	c, err := new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", r.Port+p.Offset))
	if err != nil {
		return Answer{Fails: example.FailsConnect, Why: err.Error()}
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline) // a connection that is open has one
	if _, scheme, _, _ := r.Target(); scheme == "https" {
		secure := tls.Client(c, p.config(r))
		if err := secure.HandshakeContext(ctx); err != nil {
			return Answer{Fails: example.FailsHandshake, Why: err.Error()}
		}
		if names := secure.ConnectionState().PeerCertificates[0].DNSNames; len(names) > 0 {
			a.Certificate = names[0]
		}
		c = secure
	}
	if r.Protocol == example.HTTP2 {
		err = a.http2(ctx, c, r, id)
	} else {
		err = a.http1(c, r, id)
	}
	if err != nil {
		a.Fails, a.Why = example.FailsRequest, err.Error()
	}
	return a
}

// config trusts only what the example has made. The name that is checked is the one
// that is asked for, or the URL's where none is.
func (p *Prober) config(r *example.Request) *tls.Config {
	_, _, authority, _ := r.Target()
	host := hostOf(authority)
	c := &tls.Config{RootCAs: p.Trust, ServerName: host, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if r.Protocol == example.HTTP2 {
		c.NextProtos = []string{"h2"}
	}
	switch r.SNI {
	case "":
	case example.None:
		c.ServerName, c.InsecureSkipVerify = "", true // the certificate is compared with the one expected
	default:
		c.ServerName = r.SNI
	}
	if cert := p.Clients[r.Client]; cert != nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert, nil }
	}
	return c
}

func hostOf(authority string) string {
	if host, _, err := net.SplitHostPort(authority); err == nil {
		return host
	}
	return authority
}

// http1 writes the request and reads the answer.
func (a *Answer) http1(c net.Conn, r *example.Request, id string) error {
	method, _, authority, path := r.Target()
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s %s\r\nhost: %s\r\n%s: %s\r\n", method, path, r.Protocol, authority, echo.IDHeader, id)
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, value := range r.Headers[name] {
			fmt.Fprintf(&head, "%s: %s\r\n", name, value)
		}
	}
	if r.Body != "" {
		fmt.Fprintf(&head, "content-length: %d\r\n", len(r.Body))
	}
	reader := bufio.NewReader(c)
	if r.Socket != nil {
		return a.socket(c, reader, r, head.String())
	}
	if _, err := io.WriteString(c, head.String()+"\r\n"+r.Body); err != nil {
		return err
	}
	resp, err := readResponse(reader, method)
	if err != nil {
		return err
	}
	return a.read(resp)
}

// readResponse reads the final answer, past those of 1xx.
func readResponse(r *bufio.Reader, method string) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil || resp.StatusCode >= 200 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
		_ = resp.Body.Close()
	}
}

// socket asks for a WebSocket and expects every message back.
func (a *Answer) socket(c net.Conn, reader *bufio.Reader, r *example.Request, head string) error {
	resp, err := echo.Upgrade(c, reader, head)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return a.read(resp)
	}
	defer resp.Body.Close()
	a.Status, a.Protocol, a.Headers = resp.StatusCode, resp.Proto, resp.Header
	if a.Body, err = echo.ReadText(reader); err != nil {
		return err
	}
	for _, text := range r.Socket {
		if err := echo.WriteText(c, text, true); err != nil {
			return err
		}
		if back, err := echo.ReadText(reader); err != nil || back != text {
			return fmt.Errorf("sent %q over the WebSocket, got back %q, %w", text, back, err)
		}
	}
	return nil
}

// http2 sends over a connection that is open already.
func (a *Answer) http2(ctx context.Context, c net.Conn, r *example.Request, id string) error {
	method, scheme, authority, path := r.Target()
	t := &http.Transport{Protocols: &http.Protocols{}, DisableCompression: true}
	dial := func(context.Context, string, string) (net.Conn, error) { return c, nil }
	if scheme == "https" {
		t.Protocols.SetHTTP2(true)
		t.DialTLSContext = dial
	} else {
		t.Protocols.SetUnencryptedHTTP2(true)
		t.DialContext = dial
	}
	defer t.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, scheme+"://"+authority+path, strings.NewReader(r.Body))
	if err != nil {
		return err
	}
	req.Header.Set(echo.IDHeader, id)
	req.Header.Set("User-Agent", "") // none
	for name, values := range r.Headers {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if len(r.Trailers) > 0 {
		req.ContentLength = -1
		req.Trailer = http.Header{}
		for name, value := range r.Trailers {
			req.Trailer.Set(name, value)
		}
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	return a.read(resp)
}

func (a *Answer) read(resp *http.Response) error {
	defer resp.Body.Close()
	a.Status, a.Protocol, a.Headers = resp.StatusCode, resp.Proto, resp.Header
	var body bytes.Buffer
	_, err := io.Copy(&body, resp.Body)
	a.Body, a.Trailers = body.String(), resp.Trailer
	return err
}
