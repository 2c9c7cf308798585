package standalone

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/standalone/narrator"
	"aether.io/aether/internal/statedir"
	"aether.io/aether/internal/svid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

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
	n := in.narrator()
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

func TestThatReadyCannotBeWrittenStopsNothing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "d")
	state, err := statedir.Of(root)
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan struct{})
	n := narrator.New(narrator.Config{State: state, Out: writer(sync.OnceFunc(func() { close(told) }))})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); keep(ctx, n, state.Ready(), nil) }()
	narrated := make(chan struct{})
	go func() { defer close(narrated); n.Run(ctx) }()
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
