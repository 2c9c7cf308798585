package svid_test

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/svid"
	"aether.io/aether/internal/test/keypair"
)

func TestTokenIsNeverPrinted(t *testing.T) {
	const secret = "s3cr3t-token-text"
	tok := svid.TokenFromString(secret)
	type holder struct {
		Public  svid.Token
		private svid.Token
		ptr     *svid.Token
	}
	h := holder{tok, tok, &tok}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%p"} {
		for _, v := range []any{tok, &tok, h, &h, []svid.Token{tok}, map[string]svid.Token{"a": tok}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	for _, log := range []*slog.Logger{
		slog.New(slog.NewJSONHandler(&out, nil)), slog.New(slog.NewTextHandler(&out, nil)),
	} {
		log.Info("m", "token", tok, "holder", h, "pointer", &h)
	}
	if err := json.NewEncoder(&out).Encode(map[string]any{"t": tok, "h": h}); err != nil {
		t.Fatal(err)
	}
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret)} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the token was printed as %q in:\n%s", form, out.String())
		}
	}
	if tok.Reveal() != secret || tok.IsZero() || !(svid.Token{}).IsZero() {
		t.Error("the token does not hold its text")
	}
}

func root(t testing.TB, notAfter time.Time) *x509.Certificate {
	t.Helper()
	return keypair.New(t, &x509.Certificate{NotAfter: notAfter, IsCA: true, BasicConstraintsValid: true}, nil).Cert
}

func TestBundleIsASet(t *testing.T) {
	at := time.Unix(1<<31, 0).UTC()
	a, b, c := root(t, at), root(t, at), root(t, at.Add(-time.Hour))
	one, other := svid.NewBundle(a, b, a, c), svid.NewBundle(c, c).With(b).With(a, b)
	if !one.Equal(other) || !bytes.Equal(one.PEM(), other.PEM()) {
		t.Error("two bundles of the same roots differ")
	}
	if fp := one.Fingerprints(); len(fp) != 3 || !slices.IsSorted(fp) {
		t.Errorf("fingerprints %v", fp)
	}
	read, err := svid.ParseBundle(append([]byte("# roots\n"), one.PEM()...))
	if err != nil || !read.Equal(one) {
		t.Errorf("what was written reads as %v, %v", read.Fingerprints(), err)
	}
	if got := one.Valid(at); !got.Equal(svid.NewBundle(a, b)) {
		t.Errorf("valid: %v", got.Fingerprints())
	}
	if got := one.DER(); len(got) != 3 {
		t.Errorf("%d encodings", len(got))
	}
}

func TestEmptyBundleTrustsNobody(t *testing.T) {
	var b svid.Bundle
	if !b.IsZero() || b.Pool() == nil || len(b.PEM()) != 0 {
		t.Error("the zero bundle is not an empty pool")
	}
}

func TestParseBundleRefuses(t *testing.T) {
	good := svid.NewBundle(root(t, time.Unix(1<<31, 0))).PEM()
	for name, text := range map[string][]byte{
		"nothing":              nil,
		"text":                 []byte("hello"),
		"a key":                pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}}),
		"a key after a root":   append(slices.Clone(good), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte{1}})...),
		"a broken certificate": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte{0x30, 0}}),
		"more than 64":         bytes.Repeat(good, 65),
	} {
		t.Run(name, func(t *testing.T) {
			if b, err := svid.ParseBundle(text); !errors.Is(err, svid.ErrBundle) {
				t.Errorf("got %v, %v; want ErrBundle", b.Fingerprints(), err)
			}
		})
	}
}

func FuzzParseBundle(f *testing.F) {
	f.Add(svid.NewBundle(root(f, time.Unix(1<<31, 0))).PEM())
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := svid.ParseBundle(text)
		if (err == nil) == b.IsZero() {
			t.Fatalf("%d roots with error %v", len(b.Fingerprints()), err)
		}
		if err != nil {
			return
		}
		if again, err := svid.ParseBundle(b.PEM()); err != nil || !again.Equal(b) {
			t.Fatalf("does not read back: %v", err)
		}
	})
}
