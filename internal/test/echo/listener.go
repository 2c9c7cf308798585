package echo

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// helloTimeout bounds the wait for a connection's first byte. Connections that are kept
// ready for later send none for long.
const helloTimeout = time.Hour

// sniffer accepts TLS and plain text on one port: a TLS connection begins with the byte
// 0x16, and no request does.
type sniffer struct {
	net.Listener
	config *tls.Config // nil: plain text only

	ready chan net.Conn
	mu    sync.Mutex
	open  map[net.Conn]bool // that have sent nothing yet
	done  chan struct{}
	once  sync.Once
}

func sniff(l net.Listener, config *tls.Config) *sniffer {
	s := &sniffer{Listener: l, config: config, ready: make(chan net.Conn), open: map[net.Conn]bool{}, done: make(chan struct{})}
	go s.accept()
	return s
}

// accept takes connections until the listener closes.
func (s *sniffer) accept() {
	defer s.once.Do(func() { close(s.done) })
	for {
		c, err := s.Listener.Accept()
		if err != nil {
			return
		}
		if s.config == nil {
			s.offer(c)
			continue
		}
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
		go s.look(c)
	}
}

// look waits for the first byte and decides what the connection is.
func (s *sniffer) look(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout)) // a connection without deadlines ends when it is closed
	r := bufio.NewReader(c)
	first, err := r.Peek(1)
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	var conn net.Conn = &peeked{Conn: c, r: r}
	if first[0] == 0x16 {
		conn = tls.Server(conn, s.config)
	}
	s.offer(conn)
}

func (s *sniffer) offer(c net.Conn) {
	select {
	case s.ready <- c:
	case <-s.done:
		_ = c.Close()
	}
}

// Accept returns the next connection that has said what it is.
func (s *sniffer) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		return c, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close ends the listener and the connections that have said nothing.
func (s *sniffer) Close() error {
	s.once.Do(func() { close(s.done) })
	s.mu.Lock()
	for c := range s.open {
		_ = c.Close()
	}
	s.mu.Unlock()
	return s.Listener.Close()
}

// peeked is a connection of which the beginning has been read.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

func (p *peeked) Read(b []byte) (int, error) { return p.r.Read(b) }
