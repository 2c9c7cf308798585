package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"aether.io/aether/test/cluster/supervise"
)

// actions are what can be done to a program, by the last part of the path.
var actions = map[string]func(*supervise.Group, string) error{
	"start":  (*supervise.Group).Start,
	"stop":   (*supervise.Group).Stop,
	"kill":   func(g *supervise.Group, name string) error { return g.Signal(name, syscall.SIGKILL) },
	"halt":   func(g *supervise.Group, name string) error { return g.Signal(name, syscall.SIGSTOP) },
	"resume": func(g *supervise.Group, name string) error { return g.Signal(name, syscall.SIGCONT) },
}

func (m Machine) socket() string { return m.path("control.sock") }

// serveControl answers GET /programs and POST /programs/{name}/{action} until ctx is done.
// Only root may connect, by the socket's mode.
func (m Machine) serveControl(ctx context.Context, group *supervise.Group) error {
	if err := os.Remove(m.socket()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", m.socket())
	if err != nil {
		return err
	}
	if err := os.Chmod(m.socket(), 0o600); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /programs", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(group.Status()) // the client sees that it is cut off
	})
	mux.HandleFunc("POST /programs/{name}/{action}", func(w http.ResponseWriter, r *http.Request) {
		act := actions[r.PathValue("action")]
		if act == nil {
			http.Error(w, "no such action", http.StatusNotFound)
		} else if err := act(group, r.PathValue("name")); err != nil {
			http.Error(w, err.Error(), http.StatusConflict)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// StartProgram starts a program that was stopped.
func (m Machine) StartProgram(ctx context.Context, name string) error {
	return m.act(ctx, name, "start")
}

// StopProgram ends a program in order; it stays so until StartProgram.
func (m Machine) StopProgram(ctx context.Context, name string) error { return m.act(ctx, name, "stop") }

// KillProgram ends a program at once; it is started again.
func (m Machine) KillProgram(ctx context.Context, name string) error { return m.act(ctx, name, "kill") }

// HaltProgram makes a program stand still until ResumeProgram.
func (m Machine) HaltProgram(ctx context.Context, name string) error { return m.act(ctx, name, "halt") }

// ResumeProgram lets a halted program go on.
func (m Machine) ResumeProgram(ctx context.Context, name string) error {
	return m.act(ctx, name, "resume")
}

func (m Machine) act(ctx context.Context, name, action string) error {
	_, err := m.call(ctx, http.MethodPost, "/programs/"+name+"/"+action)
	return err
}

// Programs tells of the machine's programs.
func (m Machine) Programs(ctx context.Context) ([]supervise.Status, error) {
	text, err := m.call(ctx, http.MethodGet, "/programs")
	if err != nil {
		return nil, err
	}
	var out []supervise.Status
	err = json.Unmarshal(text, &out)
	return out, err
}

func (m Machine) call(ctx context.Context, method, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", m.socket())
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the machine in %s: %w", m.dir, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s in %s: %s", path, m.dir, strings.TrimSpace(string(body)))
	}
	return body, nil
}
