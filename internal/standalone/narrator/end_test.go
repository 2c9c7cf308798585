package narrator

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/child"
)

func TestAnEndReadsAsProse(t *testing.T) {
	for want, c := range map[string]struct {
		exit  child.Exit
		words string
	}{
		"envoy ended with exit status 1 and said last: no such option (/log); it is started again":             {child.Exit{State: "exit status 1", InARow: 1}, "no such option"},
		"envoy ended with exit status 1 and said last: nothing (/log); 3 times in a row, tried again in 400ms": {child.Exit{State: "exit status 1", InARow: 3, Wait: 400 * time.Millisecond}, ""},
		"envoy was ended (signal: killed); it is started again":                                                {child.Exit{State: "signal: killed", Signaled: true, InARow: 1}, "all is well"},
		"envoy cannot be started: no such file; 2 times in a row, tried again in 200ms":                        {child.Exit{Err: errors.New("no such file"), InARow: 2, Wait: 200 * time.Millisecond}, ""},
	} {
		if got := endProse("envoy", c.exit, c.words, "/log"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestOneThatEndsAgainAndAgainIsToldLessAndLess(t *testing.T) {
	var out bytes.Buffer
	n := New(Config{State: state(t), Out: &out})
	for i := 1; i <= 20; i++ {
		n.Ended("envoy", child.Exit{State: "exit status 1", InARow: i}, 0)
	}
	n.flush(time.Time{})
	if got := strings.Count(out.String(), "envoy ended"); got != 5 { // after 1, 2, 4, 8, 16
		t.Errorf("told %d times:\n%s", got, out.String())
	}
	n.ended["envoy"] = time.Now().Add(-2 * endTold)
	n.Ended("envoy", child.Exit{State: "exit status 1", InARow: 21}, 0)
	n.flush(time.Time{})
	if !strings.Contains(out.String(), "21 times in a row") {
		t.Errorf("not told after a while:\n%s", out.String())
	}
}

func TestLastLineIsOfThisRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	before := "of an earlier run\n"
	if err := os.WriteFile(path, []byte(before+strings.Repeat("x", 9000)+"\nunknown flag: --nope\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	size := int64(len(before) + 9000 + len("\nunknown flag: --nope\n\n"))
	for from, want := range map[int64]string{0: "unknown flag: --nope", int64(len(before)): "unknown flag: --nope", size: "", size + 5: ""} {
		if got := lastLine(path, from); got != want {
			t.Errorf("from %d: got %q, want %q", from, got, want)
		}
	}
	if got := lastLine(filepath.Join(t.TempDir(), "none"), 0); got != "" {
		t.Errorf("no file has the line %q", got)
	}
}
