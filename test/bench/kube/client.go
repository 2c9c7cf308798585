package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"aether.io/aether/internal/run"
)

// client asks a Gateway.
type client struct {
	http.Client
	at string // host:port
}

func newClient(at string) *client {
	return &client{Client: http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{}}, at: at}
}

// get returns the status code, 0 if there was no answer.
func (c *client) get(ctx context.Context, host string) (code int, header http.Header) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.at+"/", http.NoBody)
	if err != nil {
		return 0, nil
	}
	req.Host = host
	resp, err := c.Do(req)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, resp.Header
}

// until asks for host until it answers 200, and returns when it did.
func (c *client) until(ctx context.Context, host string, codes map[int]int) (time.Time, error) {
	deadline := time.Now().Add(patience)
	for {
		code, _ := c.get(ctx, host)
		now := time.Now()
		codes[code]++
		switch {
		case code == http.StatusOK:
			return now, nil
		case now.After(deadline):
			return now, fmt.Errorf("%s does not answer 200: %v", host, codes)
		}
		// Who asks must not take the processor from who is asked.
		if err := run.Sleep(ctx, 500*time.Microsecond); err != nil {
			return now, err
		}
	}
}
