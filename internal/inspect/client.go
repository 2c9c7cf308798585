package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// What bounds one question: beside the process, and where there is a way to it.
const (
	timeout    = 5 * time.Second
	farTimeout = 15 * time.Second
)

// Client asks the process behind one socket.
type Client struct {
	http    *http.Client
	timeout time.Duration // of one question
}

// NewClient asks at socket.
func NewClient(socket string) *Client {
	var d net.Dialer
	return newClient(timeout, func(ctx context.Context) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) })
}

// NewClientOver asks a process that is elsewhere, through the connections that dial makes.
func NewClientOver(dial func(context.Context) (net.Conn, error)) *Client {
	return newClient(farTimeout, func(ctx context.Context) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, farTimeout) // that of a transport has no end of its own
		defer cancel()
		return dial(ctx)
	})
}

func newClient(timeout time.Duration, dial func(context.Context) (net.Conn, error)) *Client {
	return &Client{timeout: timeout, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
	}}}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Get decodes the answer to path into v.
func (c *Client) Get(ctx context.Context, path string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	body, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

// Event is a journal.Event as read from outside.
type Event struct {
	Seq     uint64          `json:"seq"`
	At      time.Time       `json:"at"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// Follow calls each for the events after since, until ctx is done or the process ends.
func (c *Client) Follow(ctx context.Context, since uint64, each func(Event)) error {
	body, err := c.open(ctx, EventsPath+"?since="+strconv.FormatUint(since, 10))
	if err != nil {
		return err
	}
	defer body.Close()
	dec := json.NewDecoder(body)
	// Exits: the stream ends, for whatever reason.
	for {
		var e Event
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("follow events: %w", err)
		}
		each(e)
	}
}

func (c *Client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://process"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if of, is := errors.AsType[*url.Error](err); is {
			err = of.Err // its address is nobody's
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable { // 503 is a /readyz answer
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		_ = resp.Body.Close()
		return nil, fmt.Errorf("ask %s: %s: %s", path, resp.Status, strings.TrimSpace(string(text)))
	}
	return resp.Body, nil
}
