// Package connlimit bounds how many connections a listener has open, in all and from one
// address. What is past the bound of its address is closed as it comes. When all are taken,
// one that comes displaces the oldest of the address that has the most, so that many who
// hold a lot cannot keep out one who asks for little, as the kubelet does. A stranger costs
// no more memory than the bounds allow.
package connlimit

import (
	"net"
	"slices"
	"sync"
)

// New is l with at most all connections open, at most ofPeer of them from one IP address. It
// closes l when it is closed.
func New(l net.Listener, all, ofPeer int) net.Listener {
	return &bounded{Listener: l, all: all, ofPeer: ofPeer, of: map[string][]*counted{}}
}

type bounded struct {
	net.Listener

	all, ofPeer int

	mu   sync.Mutex // guards what follows
	open int
	of   map[string][]*counted // by the peer's address, the oldest first
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
		one := &counted{Conn: c}
		one.release = sync.OnceFunc(func() { b.release(peer, one) })
		if b.admit(peer, one) {
			return one, nil
		}
		_ = c.Close()
	}
}

// admit takes a connection in, and reports whether it may stay.
func (b *bounded) admit(peer string, c *counted) bool {
	// Exits: it is in, or nobody is to make room. Each turn ends a connection.
	for {
		in, instead := b.take(peer, c)
		if instead == nil {
			return in
		}
		_ = instead.Close()
	}
}

// take takes a connection in if it is within the bounds. If all are taken, it is not, and
// instead is the one to close first; nil: there is none.
func (b *bounded) take(peer string, c *counted) (in bool, instead *counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(b.of[peer]) >= b.ofPeer:
		return false, nil
	case b.open >= b.all:
		return false, b.displaced(len(b.of[peer]) + 1)
	}
	b.open++
	b.of[peer] = append(b.of[peer], c)
	return true, nil
}

// displaced is the oldest connection of the address that has the most, if those are more than
// so many. The caller holds mu.
func (b *bounded) displaced(than int) *counted {
	var oldest *counted
	for _, list := range b.of {
		if len(list) > than {
			oldest, than = list[0], len(list)
		}
	}
	return oldest
}

func (b *bounded) release(peer string, c *counted) {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.of[peer]
	i := slices.Index(list, c)
	if i < 0 { // it was not taken in
		return
	}
	b.open--
	if b.of[peer] = slices.Delete(list, i, i+1); len(b.of[peer]) == 0 {
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
