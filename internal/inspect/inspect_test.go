package inspect_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, j *journal.Journal, pages map[string]inspect.Page) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- inspect.Serve(ctx, slog.New(slog.DiscardHandler), socket, inspect.Handler(slog.New(slog.DiscardHandler), j, pages, nil))
	}()
	t.Cleanup(func() { cancel(); <-done })
	for {
		c := inspect.NewClient(socket)
		err := c.Get(t.Context(), "/nothing", new(any))
		c.Close()
		if err != nil && strings.Contains(err.Error(), "404") {
			return socket
		}
		select {
		case err := <-done:
			t.Fatalf("Serve: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
}

func TestAPageIsAnsweredAndAnErrorIsTold(t *testing.T) {
	socket := start(t, &journal.Journal{}, map[string]inspect.Page{
		"/v1/good": func(*http.Request) (any, error) { return map[string]int{"n": 3}, nil },
		"/v1/bad":  func(*http.Request) (any, error) { return nil, errors.New("no such scope") },
	})
	c := inspect.NewClient(socket)
	defer c.Close()
	var got map[string]int
	if err := c.Get(t.Context(), "/v1/good", &got); err != nil || got["n"] != 3 {
		t.Fatalf("got %v, %v", got, err)
	}
	if err := c.Get(t.Context(), "/v1/bad", &got); err == nil || !strings.Contains(err.Error(), "no such scope") {
		t.Fatalf("got %v, want the page's error", err)
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("socket has mode %v (%v), want 0600", info.Mode(), err)
	}
}

func TestEventsAreFollowedAsTheyCome(t *testing.T) {
	var j journal.Journal
	j.Add(time.Unix(1, 0), journal.CAReady, "before", nil)
	socket := start(t, &j, nil)
	c := inspect.NewClient(socket)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := make(chan inspect.Event, 4)
	done := make(chan error, 1)
	go func() { done <- c.Follow(ctx, 0, func(e inspect.Event) { got <- e }) }()
	if e := <-got; e.Message != "before" {
		t.Fatalf("first event %v", e)
	}
	j.Add(time.Unix(2, 0), journal.Change, "after", nil)
	if e := <-got; e.Message != "after" || e.Seq != 2 {
		t.Fatalf("second event %v", e)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatalf("Follow ended with %v", err)
	}
}

func TestASocketThatIsServedIsNotTaken(t *testing.T) {
	socket := start(t, &journal.Journal{}, nil)
	if _, err := inspect.Listen(t.Context(), socket); err == nil {
		t.Fatal("a second process took the socket")
	}
}

func TestASocketThatIsRemovedIsMadeAgain(t *testing.T) {
	socket := start(t, &journal.Journal{}, map[string]inspect.Page{
		"/v1/good": func(*http.Request) (any, error) { return 1, nil },
	})
	dir := filepath.Dir(socket)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // as on a disk that has no room for it
		t.Fatal(err)
	}
	c := inspect.NewClient(socket)
	defer c.Close()
	answers := func() bool { return c.Get(t.Context(), "/v1/good", new(int)) == nil }
	deadline := time.After(20 * time.Second)
	for mended := false; !answers() || !mended; {
		select {
		case <-deadline:
			t.Fatal("nobody answers")
		case <-time.After(10 * time.Millisecond):
		}
		if !mended && !answers() {
			mended = true
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}
