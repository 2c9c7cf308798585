package attest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

func entry(name string) attest.Entry {
	return attest.Entry{Token: attest.NewToken(), Identity: attest.Identity{
		Namespace: "aether-system", ServiceAccount: "coxswain-shared-proxy",
		Pod: spiffeid.Pod{Name: name, UID: "uid-" + name, Node: "node-1"},
	}}
}

func write(t testing.TB, path string, entries ...attest.Entry) {
	t.Helper()
	if err := attest.WriteTokenFile(path, entries); err != nil {
		t.Fatal(err)
	}
}

func TestEachTokenStandsForItsIdentity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	a, b := entry("a"), entry("b")
	write(t, path, a, b)
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	f := attest.NewTokenFile(path)
	for _, e := range []attest.Entry{a, b} {
		got, err := f.Attest(t.Context(), e.Token)
		if diff := cmp.Diff(e.Identity, got); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	}
}

func TestOtherTokensAreUnknown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	e := entry("a")
	write(t, path, e)
	f := attest.NewTokenFile(path)
	text := e.Token.Reveal()
	hash := e.Token.Hash()
	for name, tok := range map[string]string{
		"none":                    "",
		"another random one":      attest.NewToken().Reveal(),
		"all but the last byte":   text[:len(text)-1],
		"a byte more":             text + "A",
		"a line break at the end": text + "\n",
		"upper case":              strings.ToUpper(text) + "x",
		"the hash of a good one":  fmt.Sprintf("%x", hash),
	} {
		t.Run(name, func(t *testing.T) {
			id, err := f.Attest(t.Context(), svid.TokenFromString(tok))
			if !errors.Is(err, attest.ErrUnknownToken) || !errors.Is(err, svid.ErrUnauthenticated) || id != (attest.Identity{}) {
				t.Errorf("got %+v, %v; want ErrUnknownToken", id, err)
			}
		})
	}
	if _, err := f.Attest(t.Context(), svid.Token{}); !errors.Is(err, attest.ErrUnknownToken) {
		t.Errorf("the zero token: %v", err)
	}
}

func TestTheFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	f := attest.NewTokenFile(path)
	a, b := entry("a"), entry("b")
	if _, err := f.Attest(t.Context(), a.Token); !errors.Is(err, os.ErrNotExist) || errors.Is(err, attest.ErrUnknownToken) {
		t.Errorf("no file: %v", err)
	}
	write(t, path, a)
	if _, err := f.Attest(t.Context(), a.Token); err != nil {
		t.Error(err)
	}
	write(t, path, b) // of the same size
	if _, err := f.Attest(t.Context(), a.Token); !errors.Is(err, attest.ErrUnknownToken) {
		t.Errorf("a token that was taken out: %v", err)
	}
	if _, err := f.Attest(t.Context(), b.Token); err != nil {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Attest(t.Context(), b.Token); err == nil {
		t.Error("a token outlives its file")
	}
}

func TestAFileThatOthersMayReadProvesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	e := entry("a")
	write(t, path, e)
	f := attest.NewTokenFile(path)
	for _, mode := range []os.FileMode{0o640, 0o604, 0o620, 0o602, 0o644, 0o666, 0o601} {
		if _, err := f.Attest(t.Context(), e.Token); err != nil {
			t.Fatal(err) // it was good, and is known
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Attest(t.Context(), e.Token); !errors.Is(err, attest.ErrExposed) {
			t.Errorf("mode %#o: %v, want ErrExposed", mode, err)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMalformedFilesAttestNobody(t *testing.T) {
	good := entry("a")
	line := fmt.Sprintf(`{"token":%q,"namespace":"n","serviceAccount":"s","pod":"p","uid":"u","node":"x"}`, good.Token.Reveal())
	with := func(old, replacement string) string {
		return `{"tokens":[` + strings.Replace(line, old, replacement, 1) + `]}`
	}
	if !json.Valid([]byte(with("", ""))) {
		t.Fatal("the base of the table is no JSON")
	}
	for name, text := range map[string]string{
		"nothing":                   "",
		"not JSON":                  good.Token.Reveal(),
		"another shape":             `["` + good.Token.Reveal() + `"]`,
		"a field too many":          with(`"node"`, `"admin":true,"node"`),
		"two documents":             with("", "") + with("", ""),
		"a short token":             with(good.Token.Reveal(), good.Token.Reveal()[:31]),
		"an empty token":            with(good.Token.Reveal(), ""),
		"a namespace with a slash":  with(`"n"`, `"n/sa/admin"`),
		"no service account":        with(`"s"`, `""`),
		"no pod":                    with(`"p"`, `""`),
		"no UID":                    with(`"u"`, `""`),
		"a pod with a line break":   with(`"p"`, `"p\nq"`),
		"one token for two":         `{"tokens":[` + line + `,` + strings.Replace(line, `"p"`, `"q"`, 1) + `]}`,
		"a good line and a bad one": `{"tokens":[` + line + `,{}]}`,
		"more than a mebibyte":      with("", "") + strings.Repeat(" ", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tokens.json")
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			id, err := attest.NewTokenFile(path).Attest(t.Context(), good.Token)
			if !errors.Is(err, attest.ErrMalformed) || errors.Is(err, svid.ErrUnauthenticated) {
				t.Fatalf("got %+v, %v; want ErrMalformed", id, err)
			}
			if strings.Contains(err.Error(), good.Token.Reveal()[:8]) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
}

func TestNoFileAtAll(t *testing.T) {
	if _, err := attest.NewTokenFile(t.TempDir()).Attest(t.Context(), attest.NewToken()); !errors.Is(err, attest.ErrMalformed) {
		t.Errorf("a directory: %v, want ErrMalformed", err)
	}
}

func TestWriteRefusesWhatReadWould(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	a := entry("a")
	write(t, path, a)
	b := entry("b")
	b.Token = svid.TokenFromString("short")
	if err := attest.WriteTokenFile(path, []attest.Entry{b}); !errors.Is(err, attest.ErrMalformed) {
		t.Errorf("got %v, want ErrMalformed", err)
	}
	if _, err := attest.NewTokenFile(path).Attest(t.Context(), a.Token); err != nil {
		t.Errorf("the old file is gone: %v", err)
	}
}

func TestManyAtOnceWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	a := entry("a")
	write(t, path, a)
	f := attest.NewTokenFile(path)
	var all sync.WaitGroup
	all.Go(func() {
		for range 30 {
			write(t, path, a, entry("b"))
		}
	})
	for range 8 {
		all.Go(func() {
			for range 100 {
				if got, err := f.Attest(t.Context(), a.Token); err != nil || got != a.Identity {
					t.Errorf("%+v, %v", got, err)
				}
			}
		})
	}
	all.Wait()
}

// Whatever bytes are in the file: an error, or tokens that stand for whole identities.
func FuzzTokenFile(f *testing.F) {
	path := filepath.Join(f.TempDir(), "tokens.json")
	e := entry("a")
	write(f, path, e)
	text, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text, e.Token.Reveal())
	f.Add([]byte(`{"tokens":null}`), "")
	f.Fuzz(func(t *testing.T, text []byte, token string) {
		path := filepath.Join(t.TempDir(), "tokens.json")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := attest.NewTokenFile(path).Attest(t.Context(), svid.TokenFromString(token))
		if err == nil && (len(token) < 32 || spiffeid.CheckAccount(id.Namespace, id.ServiceAccount) != nil || id.Pod.Validate() != nil) {
			t.Errorf("%q stands for %+v", token, id)
		}
	})
}
