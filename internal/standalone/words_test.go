package standalone

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/statedir"
)

func TestOneLineIsOneLine(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text":          {"a ü b", "a ü b"},
		"a line of its own":   {"x\nready\n", `x\nready\n`},
		"a terminal's escape": {"\x1b[2J\x1b]0;x\a", `\x1b[2J\x1b]0;x\a`},
		"a carriage return":   {"a\rready", `a\rready`},
		"a line separator":    {"a\u2028b", `a\u2028b`},
		"reversed text":       {"a\u202eb", `a\u202eb`},
		"no UTF-8":            {"a\xffb", `a�b`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OneLine(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// A manifest's author must not be able to say for us that we are ready.
func TestNobodyElseSaysReady(t *testing.T) {
	var out bytes.Buffer
	n := newNarrator(Config{Out: &out})
	n.tell("controller", inspect.Event{At: time.Now(), Kind: "problem", Message: "HTTPRoute/x\nready\n: no"})
	n.flush(time.Time{})
	if out.Len() == 0 {
		t.Fatal("nothing is told")
	}
	for line := range strings.Lines(out.String()) {
		if strings.TrimSpace(line) == "ready" {
			t.Fatalf("it did: %q", out.String())
		}
	}
}

func TestThatReadyCannotBeWrittenStopsNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "d")
	state, err := statedir.Of(root)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	n := newNarrator(Config{State: state, Out: writer(sync.OnceFunc(func() { close(told) }))})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); n.keep(ctx, state.Ready(), nil) }()
	narrated := make(chan struct{})
	go func() { defer close(narrated); n.narrate(ctx) }()
	defer func() { cancel(); <-narrated }()
	<-told // the directory is not there
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	<-done
	if _, err := os.Stat(state.Ready()); err != nil {
		t.Fatalf("the file is not made though it could be: %v", err)
	}
}

// writer calls itself for each write.
type writer func()

func (w writer) Write(b []byte) (int, error) { w(); return len(b), nil }
