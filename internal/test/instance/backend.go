package instance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Backend is a small HTTP server on 127.0.0.1 that says its name.
type Backend struct {
	Name string
	Port int
	srv  *http.Server
}

// StartBackend serves on port, or on any free one if port is 0 or taken.
func StartBackend(name string, port int) (*Backend, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		return nil, err
	}
	b := &Backend{Name: name, Port: l.Addr().(*net.TCPAddr).Port}
	b.srv = &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, name)
	})}
	go func() { _ = b.srv.Serve(l) }() // ends with Close
	return b, nil
}

// Close stops the server.
func (b *Backend) Close() { _ = b.srv.Close() }
