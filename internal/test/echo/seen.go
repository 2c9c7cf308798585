package echo

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strings"
)

// maxBody bounds the part of a body that is reported. The rest is counted.
const maxBody = 64 << 10

// Seen is a request as it arrived at a backend.
type Seen struct {
	Backend   string              `json:"backend"`
	Method    string              `json:"method"`
	Host      string              `json:"host"`     // as sent
	Path      string              `json:"path"`     // with the query, as sent
	Protocol  string              `json:"protocol"` // "HTTP/1.1", "HTTP/2.0"
	Headers   map[string][]string `json:"headers"`  // names in lower case, without Host
	Body      string              `json:"body,omitempty"`
	BodyBytes int64               `json:"bodyBytes,omitempty"`
	Trailers  map[string][]string `json:"trailers,omitempty"`
	TLS       *TLS                `json:"tls,omitempty"` // nil: plain text
}

// TLS is what a backend knows of a TLS connection.
type TLS struct {
	Version    string `json:"version"`              // "TLS 1.3"
	ServerName string `json:"serverName,omitempty"` // SNI
	ALPN       string `json:"alpn,omitempty"`
	Client     string `json:"client,omitempty"` // common name of the client's certificate
}

// see reads the request to its end.
func see(backend string, r *http.Request) (Seen, error) {
	s := Seen{
		Backend: backend, Method: r.Method, Host: r.Host, Path: r.RequestURI, Protocol: r.Proto,
		Headers: lower(r.Header), TLS: describe(r.TLS),
	}
	var head strings.Builder
	n, err := io.CopyN(&head, r.Body, maxBody)
	if err == nil {
		var rest int64
		rest, err = io.Copy(io.Discard, r.Body)
		n += rest
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	s.Body, s.BodyBytes, s.Trailers = head.String(), n, lower(r.Trailer)
	return s, err
}

func lower(h http.Header) map[string][]string {
	if len(h) == 0 {
		return nil
	}
	out := make(map[string][]string, len(h))
	for name, values := range h {
		out[strings.ToLower(name)] = values
	}
	return out
}

func describe(c *tls.ConnectionState) *TLS {
	if c == nil {
		return nil
	}
	t := &TLS{Version: tls.VersionName(c.Version), ServerName: c.ServerName, ALPN: c.NegotiatedProtocol}
	if len(c.PeerCertificates) > 0 {
		t.Client = c.PeerCertificates[0].Subject.CommonName
	}
	return t
}
