// Package connlimit bounds how many connections a listener has open, in all and from one
// address. Those past a bound are closed as they come, so that whoever is first cannot make
// others wait, and a stranger costs no more memory than the bound allows.
package connlimit

import (
	"net"
	"sync"
)

// New is l with at most all connections open, at most ofPeer of them from one IP address. It
// closes l when it is closed.
func New(l net.Listener, all, ofPeer int) net.Listener {
	return &bounded{Listener: l, all: all, ofPeer: ofPeer, of: map[string]int{}}
}

type bounded struct {
	net.Listener

	all, ofPeer int

	mu   sync.Mutex // guards what follows
	open int
	of   map[string]int // by the peer's address
}

// Accept implements net.Listener. Exits: a connection within the bounds, or the listener's end.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := c.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(peer); err == nil {
			peer = host
		}
		if b.take(peer) {
			return &counted{Conn: c, release: sync.OnceFunc(func() { b.release(peer) })}, nil
		}
		_ = c.Close()
	}
}

func (b *bounded) take(peer string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.all || b.of[peer] >= b.ofPeer {
		return false
	}
	b.open++
	b.of[peer]++
	return true
}

func (b *bounded) release(peer string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if b.of[peer]--; b.of[peer] == 0 {
		delete(b.of, peer)
	}
}

// counted is a connection that counts until it is closed.
type counted struct {
	net.Conn
	release func()
}

// Close implements net.Conn.
func (c *counted) Close() error {
	defer c.release()
	return c.Conn.Close()
}
