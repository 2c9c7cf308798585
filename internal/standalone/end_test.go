package standalone

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/child"
	"aether.io/aether/internal/statedir"
	"aether.io/aether/internal/svid"
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
	n := newNarrator(Config{State: state(t), Out: &out})
	for i := 1; i <= 20; i++ {
		n.lastWords("envoy", child.Exit{State: "exit status 1", InARow: i}, 0)
	}
	n.flush(time.Time{})
	if got := strings.Count(out.String(), "envoy ended"); got != 5 { // after 1, 2, 4, 8, 16
		t.Errorf("told %d times:\n%s", got, out.String())
	}
	n.ended["envoy"] = time.Now().Add(-2 * endTold)
	n.lastWords("envoy", child.Exit{State: "exit status 1", InARow: 21}, 0)
	n.flush(time.Time{})
	if !strings.Contains(out.String(), "21 times in a row") {
		t.Errorf("not told after a while:\n%s", out.String())
	}
}

// state is a directory that an instance has made.
func state(t *testing.T) statedir.Dir {
	t.Helper()
	d, err := statedir.Of(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	release, err := d.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return d
}

// accepted reports whether the token at the proxy's place is one that the controller takes.
func accepted(t *testing.T, d statedir.Dir) (token string, ok bool) {
	t.Helper()
	text, err := os.ReadFile(d.Token())
	if err != nil {
		t.Fatal(err)
	}
	_, err = attest.NewTokenFile(d.Tokens()).Attest(t.Context(), svid.TokenFromString(string(text)))
	return string(text), err == nil
}

func TestTheProxyAlwaysHasATokenThatIsAccepted(t *testing.T) {
	d := state(t)
	var out bytes.Buffer
	in := &Instance{c: Config{State: d, Out: &out}}
	n := newNarrator(in.c)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(in.introduce(t.Context(), n))
	first, ok := accepted(t, d)
	if !ok {
		t.Fatal("the first token is not accepted")
	}
	must(in.introduce(t.Context(), n))
	second, ok := accepted(t, d)
	if !ok || second == first {
		t.Errorf("a new start has the token of before (%v), or one that is not accepted (%v)", second == first, !ok)
	}
	if _, err := attest.NewTokenFile(d.Tokens()).Attest(t.Context(), svid.TokenFromString(first)); err == nil {
		t.Error("the token of before is still accepted")
	}
	for _, path := range []string{d.Tokens(), d.Token()} { // neither can be replaced, each in turn
		text, err := os.ReadFile(path)
		must(err)
		aside := path + ".aside"
		must(os.Rename(path, aside))
		must(os.MkdirAll(filepath.Join(path, "in the way"), 0o700))
		if err := in.introduce(t.Context(), n); err == nil {
			t.Errorf("%s is not there, and it goes on", path)
		}
		must(os.RemoveAll(path))
		must(os.WriteFile(path, text, 0o600))
		must(os.Remove(aside))
	}
}
