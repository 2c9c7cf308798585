package echo

import (
	"bufio"
	"crypto/rand"
	"crypto/sha1" // RFC 6455 wants it; nothing rests on it
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
)

// maxFrame bounds a WebSocket message.
const maxFrame = 1 << 20

// The frames that are spoken (RFC 6455, section 5.2).
const (
	opText  = 1
	opClose = 8
)

// AcceptKey is what a server answers to a client's Sec-WebSocket-Key.
func AcceptKey(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// serveSocket answers every text message with itself, after a first one, which is Seen.
func (s *Server) serveSocket(w http.ResponseWriter, r *http.Request) {
	seen, err := see(s.Name, r)
	if err != nil {
		return
	}
	s.note(r.Header.Get(IDHeader), seen)
	h, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "WebSocket is spoken over HTTP/1.1", http.StatusNotImplemented)
		return
	}
	c, rw, err := h.Hijack()
	if err != nil {
		return
	}
	s.keep(c, true)
	defer func() { s.keep(c, false); _ = c.Close() }()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s: %s\r\n\r\n",
		AcceptKey(r.Header.Get("sec-websocket-key")), BackendHeader, s.Name)
	first, err := json.Marshal(seen)
	if err != nil || WriteText(c, string(first), false) != nil {
		return
	}
	// Exits: the other side closes, or the server does.
	for {
		text, err := ReadText(rw.Reader)
		if err != nil || WriteText(c, text, false) != nil {
			return
		}
	}
}

func (s *Server) keep(c net.Conn, open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if open {
		s.socket[c] = true
	} else {
		delete(s.socket, c)
	}
}

// WriteText writes one text message of less than maxFrame bytes. A client masks it.
func WriteText(w io.Writer, text string, client bool) error {
	frame := []byte{0x80 | opText}
	mask := byte(0)
	if client {
		mask = 0x80
	}
	switch n := len(text); {
	case n >= maxFrame:
		return fmt.Errorf("a message of %d bytes is too long", n)
	case n < 126:
		frame = append(frame, mask|byte(n))
	case n < 1<<16:
		frame = binary.BigEndian.AppendUint16(append(frame, mask|126), uint16(n))
	default:
		frame = binary.BigEndian.AppendUint64(append(frame, mask|127), uint64(n))
	}
	body := []byte(text)
	if client {
		var key [4]byte
		_, _ = rand.Read(key[:]) // never fails
		frame = append(frame, key[:]...)
		apply(body, key)
	}
	_, err := w.Write(append(frame, body...))
	return err
}

// ReadText reads one text message. Its error is io.EOF if the other side closed.
func ReadText(r *bufio.Reader) (string, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return "", err
	}
	n := uint64(head[1] & 0x7f)
	var long [8]byte
	switch n {
	case 126:
		if _, err := io.ReadFull(r, long[6:]); err != nil {
			return "", err
		}
		n = binary.BigEndian.Uint64(long[:])
	case 127:
		if _, err := io.ReadFull(r, long[:]); err != nil {
			return "", err
		}
		n = binary.BigEndian.Uint64(long[:])
	}
	if n >= maxFrame {
		return "", fmt.Errorf("a message of %d bytes is too long", n)
	}
	var key [4]byte
	if head[1]&0x80 != 0 {
		if _, err := io.ReadFull(r, key[:]); err != nil {
			return "", err
		}
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return "", err
	}
	apply(body, key)
	switch head[0] {
	case 0x80 | opText:
		return string(body), nil
	case 0x80 | opClose:
		return "", io.EOF
	}
	return "", errors.New("neither a text message in one frame nor a close")
}

func apply(body []byte, key [4]byte) {
	for i := range body {
		body[i] ^= key[i%4]
	}
}

// Upgrade asks for a WebSocket on a connection. request is the request's head but for
// the lines of the upgrade itself, each line with its CRLF. The answer's body is not to
// be read: messages follow, from r.
func Upgrade(c net.Conn, r *bufio.Reader, request string) (*http.Response, error) {
	key := base64.StdEncoding.EncodeToString([]byte("aether-feature-e"))
	_, err := io.WriteString(c, request+strings.Join([]string{
		"connection: Upgrade", "upgrade: websocket", "sec-websocket-version: 13", "sec-websocket-key: " + key, "", "",
	}, "\r\n"))
	if err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols && resp.Header.Get("sec-websocket-accept") != AcceptKey(key) {
		return resp, errors.New("the answer to the WebSocket key is wrong")
	}
	return resp, nil
}
