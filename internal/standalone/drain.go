package standalone

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"aether.io/aether/internal/logkey"
)

// adminTimeout bounds one request to Envoy's admin interface.
const adminTimeout = 2 * time.Second

// drain asks Envoy to wind down and waits until no request is active, for at most the
// instance's drain time. An Envoy that does not answer has nothing to drain.
func (in *Instance) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, in.c.Drain)
	defer cancel()
	admin := adminClient(in.c.State.AdminSocket())
	defer admin.CloseIdleConnections()
	if _, err := adminCall(ctx, admin, http.MethodPost, "/drain_listeners?graceful"); err != nil {
		in.c.Log.Debug("drain envoy", logkey.Error, err)
		return
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	// Exits: nothing is active, Envoy does not answer, or the drain time is over.
	for {
		active, err := activeRequests(ctx, admin)
		if err != nil || active == 0 {
			return
		}
		select {
		case <-ctx.Done():
			in.c.Log.Warn("requests were still active when the drain time was over", logkey.Count, active)
			return
		case <-tick.C:
		}
	}
}

// activeRequests sums the requests that are active on our listeners.
func activeRequests(ctx context.Context, admin *http.Client) (int, error) {
	text, err := adminCall(ctx, admin, http.MethodGet, "/stats?filter=downstream_rq_active$")
	if err != nil {
		return 0, err
	}
	sum := 0
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		if strings.HasPrefix(name, "http.admin.") {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", name, err)
		}
		sum += n
	}
	return sum, lines.Err()
}

func adminClient(socket string) *http.Client {
	var d net.Dialer
	return &http.Client{Timeout: adminTimeout, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}
}

func adminCall(ctx context.Context, c *http.Client, method, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var b strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&b); err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("envoy admin %s: %s", path, resp.Status)
	}
	return b.String(), nil
}
