package ca_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/svid"
)

func TestStartersThatRaceHaveOneCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	var all []*ca.Authority
	for range 16 {
		a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
		all = append(all, a)
	}
	for _, a := range all {
		waitReady(t, a)
		if roots := a.Roots(); len(roots.Certificates()) != 1 || !roots.Equal(all[0].Roots()) {
			t.Errorf("roots %v, want %v", roots.Fingerprints(), all[0].Roots().Fingerprints())
		}
	}
	modes := map[string]os.FileMode{dir: os.ModeDir | 0o700, dir + "/tls.crt": 0o600, dir + "/tls.key": 0o600}
	for path, want := range modes {
		if info, err := os.Stat(path); err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestCreateNeverReplaces(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	store := ca.FileStore{Dir: dir}
	if _, err := store.Load(t.Context()); !errors.Is(err, ca.ErrAbsent) {
		t.Errorf("an absent directory: %v", err)
	}
	first := makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t)
	if err := store.Create(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	var racers sync.WaitGroup
	for range 8 {
		racers.Go(func() {
			if err := store.Create(t.Context(), ca.Material{Cert: []byte("x"), Key: []byte("y")}); !errors.Is(err, ca.ErrExists) {
				t.Errorf("second create: %v, want ErrExists", err)
			}
		})
	}
	racers.Wait()
	if got, err := store.Load(t.Context()); err != nil || !got.Equal(first) {
		t.Errorf("the store holds something else now, %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Load(t.Context()); !errors.Is(err, ca.ErrMalformed) || errors.Is(err, ca.ErrAbsent) {
		t.Errorf("half a CA: %v, want ErrMalformed", err)
	}
}

// bad is a stored CA that must not be used, and the error that says why.
type bad struct {
	put  func(t testing.TB, dir string)
	want error
}

func badCAs() map[string]bad {
	made := func(change func(*x509.Certificate)) func(testing.TB, string) {
		return func(t testing.TB, dir string) {
			put(t, dir, makeCA(t, nil, newKey(t, elliptic.P256()), change).material(t))
		}
	}
	good := func(t testing.TB) ca.Material { return makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t) }
	return map[string]bad{
		"garbage": {func(t testing.TB, dir string) {
			put(t, dir, ca.Material{Cert: []byte("garbage"), Key: []byte("garbage")})
		}, ca.ErrMalformed},
		"a certificate that is cut": {func(t testing.TB, dir string) {
			m := good(t)
			m.Cert = m.Cert[:len(m.Cert)/2]
			put(t, dir, m)
		}, ca.ErrMalformed},
		"an empty key": {func(t testing.TB, dir string) { m := good(t); m.Key = nil; put(t, dir, m) }, ca.ErrMalformed},
		"a key among the certificates": {func(t testing.TB, dir string) {
			m := good(t)
			m.Cert = append(m.Cert, m.Key...)
			put(t, dir, m)
		}, ca.ErrMalformed},
		"no key file": {func(t testing.TB, dir string) {
			put(t, dir, good(t))
			if err := os.Remove(filepath.Join(dir, "tls.key")); err != nil {
				t.Fatal(err)
			}
		}, ca.ErrMalformed},
		"another CA's key": {func(t testing.TB, dir string) {
			m := good(t)
			m.Key = good(t).Key
			put(t, dir, m)
		}, ca.ErrKeyMismatch},
		"a weak key": {func(t testing.TB, dir string) {
			put(t, dir, makeCA(t, nil, newKey(t, elliptic.P224()), nil).material(t))
		}, ca.ErrMalformed},
		"a leaf":                 {made(func(c *x509.Certificate) { c.IsCA = false }), ca.ErrNotCA},
		"a CA that may not sign": {made(func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }), ca.ErrNotCA},
		"an expired CA":          {made(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), ca.ErrExpired},
		"a CA of tomorrow":       {made(func(c *x509.Certificate) { c.NotBefore = time.Now().Add(24 * time.Hour) }), ca.ErrNotYetValid},
		"a CA for e-mail only":   {made(func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection} }), ca.ErrUnverified},
		"a CA of another domain": {made(func(c *x509.Certificate) { c.PermittedURIDomains = []string{"example.com"} }), ca.ErrUnverified},
		"a chain that does not link": {func(t testing.TB, dir string) {
			m := good(t)
			m.Cert = append(m.Cert, good(t).Cert...)
			put(t, dir, m)
		}, ca.ErrUnverified},
		"an intermediate below an expired root": {func(t testing.TB, dir string) {
			root := makeCA(t, nil, newKey(t, elliptic.P256()), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
			put(t, dir, makeCA(t, root, newKey(t, elliptic.P256()), nil).material(t))
		}, ca.ErrExpired},
		"a key that others may read": {func(t testing.TB, dir string) {
			put(t, dir, good(t))
			if err := os.Chmod(filepath.Join(dir, "tls.key"), 0o640); err != nil {
				t.Fatal(err)
			}
		}, ca.ErrExposed},
	}
}

func clean(t testing.TB, dir string) {
	t.Helper()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
}

func TestBadCAAtStartIsNeverUsedNorReplaced(t *testing.T) {
	for name, tc := range badCAs() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ca")
				tc.put(t, dir)
				cert, _ := os.ReadFile(filepath.Join(dir, "tls.crt"))
				a, log := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
				pass(10 * time.Minute)
				if isReady(a) || !errors.Is(a.Fault(), tc.want) || !a.Roots().IsZero() {
					t.Fatalf("ready %v, fault %v, roots %v; want not ready and %v", isReady(a), a.Fault(), a.Roots().Fingerprints(), tc.want)
				}
				if n := strings.Count(log.String(), `"level":"ERROR"`); n != 1 {
					t.Errorf("one fault was logged %d times", n)
				}
				if now, _ := os.ReadFile(filepath.Join(dir, "tls.crt")); !bytes.Equal(cert, now) {
					t.Error("the stored CA was replaced")
				}
				clean(t, dir)
				put(t, dir, makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t))
				pass(time.Minute)
				if !isReady(a) || a.Fault() != nil {
					t.Errorf("not ready a minute after it was mended: %v", a.Fault())
				}
			})
		})
	}
}

func TestBadCAWhileRunningLeavesTheLastGood(t *testing.T) {
	cases := badCAs()
	cases["nothing"] = bad{func(testing.TB, string) {}, ca.ErrAbsent}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ca")
				a, log := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
				synctest.Wait()
				if !isReady(a) {
					t.Fatal(a.Fault())
				}
				before := a.Roots()
				req := svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()}
				clean(t, dir)
				tc.put(t, dir)
				pass(time.Minute)
				if !errors.Is(a.Fault(), tc.want) {
					t.Errorf("fault %v, want %v", a.Fault(), tc.want)
				}
				if leaf, _ := issue(t, a, req); leaf.CheckSignatureFrom(before.Certificates()[0]) != nil || !a.Roots().Equal(before) {
					t.Error("the last good CA is not in use any more")
				}
				if n := strings.Count(log.String(), `"level":"ERROR"`); n != 1 {
					t.Errorf("one fault was logged %d times", n)
				}
			})
		})
	}
}

func TestACAThatIsReplacedCutsNobodyOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := t.TempDir()
		dir, bundle := filepath.Join(base, "ca"), filepath.Join(base, "trust-bundle", "ca.crt")
		a, log := start(t, ca.Config{Store: ca.FileStore{Dir: dir}, Publisher: ca.BundleFile{Path: bundle}})
		synctest.Wait()
		old, changed := a.Roots(), a.Changed()
		next := makeCA(t, nil, newKey(t, elliptic.P384()), nil)
		put(t, dir, next.material(t))
		<-changed
		synctest.Wait()
		if want := old.With(next.cert); !a.Roots().Equal(want) {
			t.Errorf("roots %v, want %v", a.Roots().Fingerprints(), want.Fingerprints())
		}
		text, err := os.ReadFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := svid.ParseBundle(text); err != nil || !got.Equal(a.Roots()) {
			t.Errorf("published %v, %v", got.Fingerprints(), err)
		}
		leaf, _ := issue(t, a, svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()})
		if err := leaf.CheckSignatureFrom(next.cert); err != nil {
			t.Errorf("signed by another: %v", err)
		}
		if strings.Contains(log.String(), "PRIVATE KEY") {
			t.Error("a key in the log")
		}
	})
}

func TestAcceptedCAs(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	root := makeCA(t, nil, newKey(t, elliptic.P384()), nil)
	bare := makeCA(t, nil, newKey(t, elliptic.P256()), func(c *x509.Certificate) { c.SubjectKeyId = nil })
	for name, tc := range map[string]struct {
		ca    *authority
		chain int
	}{
		"P-256":             {bare, 1},
		"Ed25519":           {makeCA(t, nil, ed, nil), 1},
		"RSA 2048":          {makeCA(t, nil, rsaKey, nil), 1},
		"an intermediate":   {makeCA(t, root, newKey(t, elliptic.P256()), nil), 2},
		"of our own domain": {makeCA(t, nil, newKey(t, elliptic.P256()), func(c *x509.Certificate) { c.PermittedURIDomains = []string{"cluster.local"} }), 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ca")
			put(t, dir, tc.ca.material(t))
			a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
			waitReady(t, a)
			leaf, out := issue(t, a, svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()})
			if len(out.Chain) != tc.chain || leaf.CheckSignatureFrom(tc.ca.cert) != nil {
				t.Errorf("chain of %d, want %d", len(out.Chain), tc.chain)
			}
			if fmt.Sprintf("%x", leaf.AuthorityKeyId) != out.KeyID || out.KeyID == "" {
				t.Errorf("AKI %x, key ID %q", leaf.AuthorityKeyId, out.KeyID)
			}
		})
	}
}

func TestSEC1KeyAfterItsParameters(t *testing.T) {
	key := newKey(t, elliptic.P256())
	m := makeCA(t, nil, key, nil).material(t)
	der, err := x509.MarshalECPrivateKey(key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	m.Key = append(pem.EncodeToMemory(&pem.Block{Type: "EC PARAMETERS", Bytes: []byte{6, 0}}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})...)
	dir := filepath.Join(t.TempDir(), "ca")
	put(t, dir, m)
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
	waitReady(t, a)
	if a.Fault() != nil {
		t.Error(a.Fault())
	}
}

func TestMaterialIsNeverPrinted(t *testing.T) {
	m := ca.Material{Cert: []byte("c"), Key: []byte("s3cr3t")}
	type holder struct{ M ca.Material }
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d"} {
		for _, v := range []any{m, &m, holder{m}} {
			if out := fmt.Sprintf(verb, v); !strings.Contains(out, "REDACTED") || strings.Contains(out, "115") || strings.Contains(out, "7333") {
				t.Errorf("%s prints %s", verb, out)
			}
		}
	}
}

func TestExpiryIsComputedAtScrape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		a, _ := start(t, ca.Config{
			Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}, Lifetime: 100 * time.Hour, Registerer: reg,
		})
		synctest.Wait()
		if _, err := a.ServerTLS(controller(t)).GetCertificate(nil); err != nil {
			t.Fatal(err)
		}
		issue(t, a, svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()})
		pass(10 * time.Hour)
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			got[f.GetName()] = f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
		for name, want := range map[string]float64{
			"coxswain_discovery_ca_expiry_seconds":                 90 * 3600,
			"coxswain_discovery_root_expiry_seconds":               90 * 3600,
			"coxswain_discovery_server_certificate_expiry_seconds": 14 * 3600,
			"coxswain_discovery_svids_issued_total":                1,
			"coxswain_discovery_ca_fault":                          0,
		} {
			if v, ok := got[name]; !ok || v < want-1 || v > want+1 {
				t.Errorf("%s = %v (%v), want %v", name, v, ok, want)
			}
		}
	})
}

// Whatever bytes are in the Secret: an error, or a CA that signs.
func FuzzStoredCA(f *testing.F) {
	good := makeCA(f, nil, newKey(f, elliptic.P256()), func(c *x509.Certificate) { c.URIs = []*url.URL{} }).material(f)
	f.Add(good.Cert, good.Key)
	f.Add(good.Cert, []byte("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"))
	pub := newKey(f, elliptic.P256()).Public()
	f.Fuzz(func(t *testing.T, cert, key []byte) {
		a, err := ca.New(ca.Config{Store: fixed{ca.Material{Cert: cert, Key: key}}, TrustDomain: domain(t)})
		if err != nil {
			t.Fatal(err)
		}
		err = a.Refresh(t.Context())
		_, signErr := a.Sign(t.Context(), svid.Request{ID: controller(t), PublicKey: pub})
		if (err == nil) != (signErr == nil) {
			t.Errorf("loaded: %v, but sign: %v", err, signErr)
		}
	})
}

func TestAFaultIsToldOnceAndThatItIsMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		var mu sync.Mutex
		var told []error
		a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}, OnFault: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, err)
		}})
		waitReady(t, a)
		key, err := os.ReadFile(filepath.Join(dir, "tls.key"))
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{[]byte("damaged"), key} {
			if err := os.WriteFile(filepath.Join(dir, "tls.key"), text, 0o600); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute) // many looks
			synctest.Wait()
		}
		mu.Lock()
		defer mu.Unlock()
		if len(told) != 2 || !errors.Is(told[0], ca.ErrMalformed) || told[1] != nil {
			t.Errorf("told %v, want one fault and that it is over", told)
		}
	})
}

func TestATrustBundleIsWrittenWhereItIsNotAndOnlyThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := t.TempDir()
		bundle := filepath.Join(base, "trust-bundle", "ca.crt")
		cfg := ca.Config{Store: ca.FileStore{Dir: filepath.Join(base, "ca")}, Publisher: ca.BundleFile{Path: bundle}}
		a, _ := start(t, cfg)
		waitReady(t, a)
		first, err := os.Stat(bundle)
		if err != nil {
			t.Fatal(err)
		}
		again, _ := start(t, cfg) // a restart: nothing is to be written, so no room is needed
		waitReady(t, again)
		pass(time.Minute)
		synctest.Wait()
		if now, err := os.Stat(bundle); err != nil || !os.SameFile(first, now) {
			t.Errorf("it was written again, %v", err)
		}
		for _, dir := range []string{cfg.Store.(ca.FileStore).Dir, filepath.Dir(bundle)} { // the CA as well
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
		pass(time.Minute)
		synctest.Wait()
		text, err := os.ReadFile(bundle)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := svid.ParseBundle(text); err != nil || !got.Equal(a.Roots()) {
			t.Errorf("published %v, %v", got.Fingerprints(), err)
		}
	})
}
