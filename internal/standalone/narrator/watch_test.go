package narrator

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
)

// controller answers what a test wants it to.
type controller struct {
	mu     sync.Mutex // guards what follows
	status string     // of the one Gateway
	ports  []uint32
}

func (c *controller) set(status string, ports ...uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.ports = status, ports
}

func (c *controller) pages() map[string]inspect.Page {
	return map[string]inspect.Page{
		inspect.StatusPath: func(*http.Request) (any, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			d := inspect.StatusDocument{Kind: "Gateway", Namespace: "default", Name: "web", Status: json.RawMessage(c.status)}
			return inspect.Statuses{Settled: true, Documents: []inspect.StatusDocument{d}}, nil
		},
		inspect.ProxiesPath: func(*http.Request) (any, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return []map[string]any{{"connected": true, "boundPorts": c.ports}}, nil
		},
	}
}

// condition is a condition of a status, as JSON.
func condition(kind, status, reason, message string) string {
	return `{"type":"` + kind + `","status":"` + status + `","reason":"` + reason + `","message":"` + message + `"}`
}

// A port that another process gives up is bound with no change of an object.
func TestWhatChangesByItselfIsTold(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	c := &controller{}
	c.set(`{"conditions":[`+condition("Programmed", "False", "Invalid", "no port")+`]}`, 8443)
	socket := filepath.Join(t.TempDir(), "s")
	log := slog.New(slog.DiscardHandler)
	running.Go(func() {
		_ = inspect.Serve(ctx, log, socket, inspect.Handler(log, &journal.Journal{}, c.pages(), nil)) // that it was asked to end
	})
	lines := make(chan string, 16)
	n := New(Config{Bind: "127.0.0.1", Out: sink(lines)})
	client := inspect.NewClient(socket)
	defer client.Close()
	running.Go(func() { _ = n.watch(ctx, client) }) // that it was asked to end
	running.Go(func() { n.Run(ctx) })
	await := func(want string) {
		t.Helper()
		for {
			select {
			case l := <-lines:
				if strings.Contains(l, want) {
					return
				}
			case <-ctx.Done():
				t.Fatalf("%q is not told", want)
			}
		}
	}
	await("listening on 127.0.0.1:8443")
	c.set(`{"conditions":[`+condition("Programmed", "True", "Programmed", "live")+`]}`, 8080, 8443)
	await("Gateway/default/web: all is well again")
	await("listening on 127.0.0.1:8080")
	c.set(`{"conditions":[` + condition("Programmed", "True", "Programmed", "live") + `]}`)
	await(noListener)
}

// sink takes lines.
type sink chan<- string

func (s sink) Write(b []byte) (int, error) { s <- string(b); return len(b), nil }
