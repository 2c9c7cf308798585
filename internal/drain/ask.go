package drain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// The paths of the socket that drains, and of the port that only tells.
const (
	BeginPath = "/drain"   // POST: begins, and answers when it is over
	OverPath  = "/drained" // GET: answers when it is over, and begins nothing
)

// Handler is for those who may begin a drain: who they are is for the mode of the socket to say.
func (d *Drain) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+BeginPath, func(w http.ResponseWriter, r *http.Request) {
		d.Begin()
		d.await(w, r)
	})
	return mux
}

// OverHandler tells whoever asks when the drain is over. It begins none.
func (d *Drain) OverHandler() http.Handler {
	return http.HandlerFunc(d.await)
}

func (d *Drain) await(w http.ResponseWriter, r *http.Request) {
	// Exits: the drain is over; the asker has gone, or the process stops.
	select {
	case <-d.over:
		s := d.State()
		fmt.Fprintf(w, "drained after %s\n", time.Since(s.Begun).Round(time.Millisecond))
	case <-r.Context().Done():
		http.Error(w, "stopping before the drain is over", http.StatusServiceUnavailable)
	}
}

// Ask has the proxy behind the socket drain, and returns when that is over, or with an error.
func Ask(ctx context.Context, socket string) error {
	var d net.Dialer
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return d.DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://proxy"+BeginPath, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return errors.New("drain: the proxy is not done in time")
		}
		return fmt.Errorf("drain: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("drain: %s: %s", resp.Status, strings.TrimSpace(string(text)))
	}
	return nil
}
