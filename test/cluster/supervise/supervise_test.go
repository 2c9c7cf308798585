package supervise

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func await(t *testing.T, g *Group, what string, ok func([]Status) bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok(g.Status()) {
		select {
		case <-deadline:
			t.Fatalf("not %s: %+v", what, g.Status())
		case <-tick.C:
		}
	}
}

func TestAProgramIsKeptRunningUntilItIsStopped(t *testing.T) {
	g := New(t.TempDir(), slog.New(slog.DiscardHandler), Command{
		Name: "talker", Args: []string{"sh", "-c", "echo $WORD; exec sleep 300"}, Env: []string{"WORD=hello"},
	})
	defer g.StopAll()
	if err := g.StartAll(); err != nil {
		t.Fatal(err)
	}
	// It has said its word when it has become another program, which the signal must not precede.
	said := func(times int) func([]Status) bool {
		return func(s []Status) bool {
			text, _ := os.ReadFile(g.Log("talker"))
			return s[0].PID != 0 && s[0].Starts == times && strings.Count(string(text), "hello\n") == times
		}
	}
	await(t, g, "running", said(1))
	if err := g.Signal("talker", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, g, "running again", said(2))
	if err := g.Stop("talker"); err != nil {
		t.Fatal(err)
	}
	if s := g.Status()[0]; s.PID != 0 || g.Signal("talker", syscall.SIGKILL) == nil {
		t.Errorf("after the stop: %+v", s)
	}
	if err := g.Start("talker"); err != nil {
		t.Fatal(err)
	}
	await(t, g, "running once more", func(s []Status) bool { return s[0].PID != 0 })
}

func TestAProgramThatIsNotThereIsAnErrorAtOnce(t *testing.T) {
	g := New(t.TempDir(), slog.New(slog.DiscardHandler), Command{Name: "none", Args: []string{"/nonexistent"}})
	if err := g.StartAll(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := g.Stop("other"); !errors.Is(err, ErrUnknown) {
		t.Errorf("got %v", err)
	}
}
