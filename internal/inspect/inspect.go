// Package inspect answers read-only questions about a running process as JSON over a
// Unix socket whose mode says who may ask, and asks them. What it shows holds no
// secrets: that is the duty of each page.
package inspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
)

// Page answers one path with a value that encodes as JSON.
type Page func(r *http.Request) (any, error)

// EventsPath is where a process's journal is followed: one JSON event a line, those
// after ?since=SEQ, then new ones as they come until the client goes.
const EventsPath = "/v1/events"

// Handler serves pages by path, and j at EventsPath. raw adds handlers of their own kind.
func Handler(log *slog.Logger, j *journal.Journal, pages map[string]Page, raw map[string]http.Handler) http.Handler {
	mux := http.NewServeMux()
	for path, page := range pages {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			v, err := page(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			if err := json.NewEncoder(w).Encode(v); err != nil {
				log.Debug("answer inspection", logkey.Path, path, logkey.Error, err)
			}
		})
	}
	for path, h := range raw {
		mux.Handle("GET "+path, h)
	}
	mux.HandleFunc("GET "+EventsPath, func(w http.ResponseWriter, r *http.Request) { follow(w, r, j) })
	return mux
}

// lull is how long an event waits for company before it is told: those who watch can wait
// longer than what they watch.
const lull = 20 * time.Millisecond

func follow(w http.ResponseWriter, r *http.Request, j *journal.Journal) {
	since, err := strconv.ParseUint(cmpOr(r.URL.Query().Get("since"), "0"), 10, 64)
	if err != nil {
		http.Error(w, "since: "+err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	enc, flush := json.NewEncoder(w), http.NewResponseController(w)
	_ = flush.Flush()
	// Exits: the client has gone, or the server closes.
	for {
		if _, err := j.Wait(r.Context(), since); err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(lull):
		}
		for _, e := range j.Since(since) {
			if enc.Encode(e) != nil {
				return
			}
			since = e.Seq
		}
		if flush.Flush() != nil {
			return
		}
	}
}

func cmpOr(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// lookEvery is how often Serve looks whether its socket is still there, and tries to open it.
const lookEvery = time.Second

// Serve answers on a Unix socket of mode 0600 until ctx is done. A socket that a dead
// process left behind is replaced, and one that is removed is made again. One that cannot be
// opened is no reason to end: nobody depends on being watched. It is logged and tried again.
func Serve(ctx context.Context, log *slog.Logger, socket string, h http.Handler) error {
	told := ""
	// Exits: ctx is done.
	for {
		err := serve(ctx, socket, h)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := fmt.Sprint(err); text != told {
			told = text
			log.Warn("inspection is not possible now; will try again", logkey.Path, socket, logkey.Error, err)
		}
		if errors.Is(err, errRemoved) {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lookEvery):
		}
	}
}

// ServeLoopback answers on a port of loopback until ctx is done. Who may reach that of a pod
// is Kubernetes' to say: its RBAC on forwarding ports.
func ServeLoopback(ctx context.Context, port uint16, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	ended, stop := start(ctx, l, h)
	defer stop()
	// Exits: serving ended, ctx is done.
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// start begins to answer on l. What ends it by itself comes out of ended; stop ends it, and
// every answer under way with it, for readers of the journal have no end of their own.
func start(ctx context.Context, l net.Listener, h http.Handler) (ended <-chan error, stop func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	served, done := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(done)
		served <- srv.Serve(l)
	}()
	return served, func() {
		_ = srv.Close()
		<-done
	}
}

// errRemoved says that the socket is not there any more.
var errRemoved = errors.New("the socket was removed")

// serve answers until ctx is done or the socket is removed.
func serve(ctx context.Context, socket string, h http.Handler) error {
	l, err := Listen(ctx, socket)
	if err != nil {
		return err
	}
	ours, err := os.Lstat(socket)
	if err != nil {
		_ = l.Close()
		return err
	}
	ended, stop := start(ctx, l, h)
	defer stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	// Exits: serving ended, ctx is done, or what is at the path is not ours.
	for {
		select {
		case err := <-ended:
			return fmt.Errorf("serve %s: %w", socket, err)
		case <-ctx.Done():
			return ctx.Err()
		case <-look.C:
			if now, err := os.Lstat(socket); err == nil && os.SameFile(ours, now) {
				continue
			}
			l.SetUnlinkOnClose(false) // what is there now is somebody else's
			return errRemoved
		}
	}
}

// Listen opens a Unix socket of mode 0600, in the place of one that nobody serves.
func Listen(ctx context.Context, socket string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: time.Second}
	if c, err := d.DialContext(ctx, "unix", socket); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("listen on %s: another process serves it", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l.(*net.UnixListener), nil
}
