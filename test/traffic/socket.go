package traffic

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"aether.io/aether/internal/test/echo"
)

// A session is a few messages over some two seconds: longer than a request, shorter than
// any drain.
const (
	messages = 20
	between  = 100 * time.Millisecond
)

// session opens a WebSocket to an echo server, has its messages come back, and closes it.
func session(ctx context.Context, address, host string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	r := bufio.NewReader(conn)
	resp, err := echo.Upgrade(conn, r, "GET / HTTP/1.1\r\nhost: "+host+"\r\n")
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return fmt.Errorf("open: answered %s", resp.Status)
	}
	if _, err := echo.ReadText(r); err != nil { // what the server saw of the request
		return fmt.Errorf("first message: %w", err)
	}
	tick := time.NewTicker(between)
	defer tick.Stop()
	for i := range messages {
		text := strconv.Itoa(i)
		if err := echo.WriteText(conn, text, true); err != nil {
			return fmt.Errorf("send message %d: %w", i, err)
		}
		if got, err := echo.ReadText(r); err != nil || got != text {
			return fmt.Errorf("message %d came back as %q, %w", i, got, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}
