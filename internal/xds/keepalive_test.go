package xds

import (
	"encoding/binary"
	"io"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// Envoy asks every 10 s whether we are there (its bootstrap says so). gRPC's own policy
// takes that for abuse and ends the connection, again and again on an idle machine.
func TestAnEnvoyMayAskHoweverOftenWhetherWeAreThere(t *testing.T) {
	const (
		ping, goAway, ack = 6, 7, 1
		times             = 20
	)
	socket := filepath.Join(t.TempDir(), "xds.sock")
	serve(t, Config{Socket: socket})
	conn := connect(t, socket)
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	frame := func(kind byte, payload string) string {
		head := []byte{0, 0, byte(len(payload)), kind, 0, 0, 0, 0, 0}
		return string(head) + payload
	}
	send := func(s string) {
		if _, err := io.WriteString(conn, s); err != nil {
			t.Fatal(err)
		}
	}
	const settings = 4
	send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(settings, "") + frame(ping, "12345678"))
	for answered := 0; answered < times; {
		var head [9]byte
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			t.Fatalf("after %d answers: %v", answered, err)
		}
		size := int64(binary.BigEndian.Uint32(append([]byte{0}, head[:3]...)))
		payload, err := io.ReadAll(io.LimitReader(conn, size))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case head[3] == goAway:
			t.Fatalf("sent away after %d answers: %q", answered, payload)
		case head[3] == ping && head[4] == ack:
			answered++
			send(frame(ping, "12345678"))
		}
	}
}

// connect waits until the socket is served.
func connect(t *testing.T, socket string) net.Conn {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if time.Now().After(end) {
			t.Fatalf("nobody serves %s: %v", socket, err)
		}
	}
}
