// Package echo is the backend of the feature examples and of tests: an HTTP server that
// answers with what it saw, as JSON. It speaks HTTP/1.0, HTTP/1.1, HTTP/2 in plain text
// and over TLS, and WebSocket, all on one port, and remembers what it saw. It knows
// nothing of Aether.
//
// Headers of a request say how it is answered:
//
//	echo-status: 503            that status, in the place of 200
//	echo-fail: 2                503 to the first two requests of the same echo-id
//	echo-delay: 2s              only after a while
//	echo-header: name: value    with that header too; may be repeated
//	echo-trailer: name: value   with that trailer too; may be repeated
//	echo-body: text             that body, in the place of the JSON
//	echo-id: text               the request's name, for Server.Of
//
// Every answer has the header echo-backend, the server's name. A request of type
// application/grpc gets one message, the JSON, and the trailer grpc-status: 0.
package echo

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The headers by which a request and its answer speak of the backend.
const (
	BackendHeader = "echo-backend"
	IDHeader      = "echo-id"
)

// Config is what a Server is started from.
type Config struct {
	Name    string      // required
	Address string      // IP address; empty: 127.0.0.1
	Port    int         // 0: any that is free
	TLS     *tls.Config // nil: TLS is not spoken. Its NextProtos are set here
}

// Server is a running backend.
type Server struct {
	Name string
	Port int
	srv  *http.Server

	mu     sync.Mutex
	byID   map[string][]Seen // requests with an echo-id
	grown  chan struct{}     // closed and replaced when one is added
	socket map[net.Conn]bool // WebSocket connections, which http.Server does not close
}

// Start serves until Close.
func Start(ctx context.Context, c Config) (*Server, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(cmp.Or(c.Address, "127.0.0.1"), strconv.Itoa(c.Port)))
	if err != nil {
		return nil, fmt.Errorf("listen for backend %s: %w", c.Name, err)
	}
	s := &Server{
		Name: c.Name, Port: l.Addr().(*net.TCPAddr).Port,
		byID: map[string][]Seen{}, grown: make(chan struct{}), socket: map[net.Conn]bool{},
	}
	config := c.TLS
	if config != nil {
		config = config.Clone()
		config.NextProtos = []string{"h2", "http/1.1"}
	}
	s.srv = &http.Server{
		Handler: s, ReadHeaderTimeout: time.Minute, Protocols: &http.Protocols{}, TLSConfig: config,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo), // that a client gives up is its own affair
	}
	s.srv.Protocols.SetHTTP1(true)
	s.srv.Protocols.SetHTTP2(true)
	s.srv.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = s.srv.Serve(sniff(l, config)) }() // ends with Close
	return s, nil
}

// Close ends the server and all its connections.
func (s *Server) Close() {
	_ = s.srv.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.socket {
		_ = c.Close()
	}
}

// Of returns the requests with that echo-id, oldest first.
func (s *Server) Of(id string) []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Seen(nil), s.byID[id]...)
}

// Grown is closed as soon as another request with an echo-id has arrived.
func (s *Server) Grown() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grown
}

// note remembers a request and returns how many of its id there were before.
func (s *Server) note(id string, seen Seen) int {
	if id == "" {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.byID[id])
	s.byID[id] = append(s.byID[id], seen)
	close(s.grown)
	s.grown = make(chan struct{})
	return before
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("upgrade"), "websocket") {
		s.serveSocket(w, r)
		return
	}
	seen, err := see(s.Name, r)
	if err != nil {
		return // the client has gone, or what it sends is broken
	}
	before := s.note(r.Header.Get(IDHeader), seen)
	if !pause(r) {
		return
	}
	out := w.Header()
	out.Set(BackendHeader, s.Name)
	for _, line := range r.Header.Values("echo-header") {
		name, value, _ := strings.Cut(line, ":")
		out.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	status := http.StatusOK
	if want, err := strconv.Atoi(r.Header.Get("echo-status")); err == nil {
		status = want
	}
	if fail, err := strconv.Atoi(r.Header.Get("echo-fail")); err == nil && before < fail {
		status = http.StatusServiceUnavailable
	}
	body, err := json.MarshalIndent(seen, "", "  ")
	if err != nil {
		return // strings and numbers can be encoded
	}
	body = append(body, '\n')
	if text, given := r.Header["Echo-Body"]; given {
		body = []byte(text[0])
	} else if out.Get("content-type") == "" {
		out.Set("content-type", "application/json")
	}
	if strings.HasPrefix(r.Header.Get("content-type"), "application/grpc") {
		out.Set("content-type", "application/grpc")
		out.Set(http.TrailerPrefix+"grpc-status", "0")
		body = message(body)
	}
	for _, line := range r.Header.Values("echo-trailer") {
		name, value, _ := strings.Cut(line, ":")
		out.Add(http.TrailerPrefix+strings.TrimSpace(name), strings.TrimSpace(value))
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = w.Write(body) // the client may have gone
	}
}

// pause waits as the request asks; false: its client has gone meanwhile.
func pause(r *http.Request) bool {
	delay, err := time.ParseDuration(r.Header.Get("echo-delay"))
	if err != nil {
		return true
	}
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// message frames a gRPC message.
func message(body []byte) []byte {
	head := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	return append(head, body...)
}
