package spiffeid_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"math/big"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/spiffeid"
)

func pod() spiffeid.Pod {
	return spiffeid.Pod{Name: "edge-7d9f", UID: "0b3e6b0a-1111-4222-8333-944444444444", Node: "node-1"}
}

// leaf signs a self-made leaf as spiffeid sees it after a verified handshake: parsed from DER.
func leaf(t testing.TB, change func(*x509.Certificate)) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ext, err := spiffeid.MarshalPod(pod())
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Unix(1<<33, 0),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		URIs:                  []*url.URL{uri(t, "spiffe://cluster.local/ns/a/sa/b")},
		ExtraExtensions:       []pkix.Extension{ext},
	}
	change(tmpl)
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func uri(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestPeerFromCertificate(t *testing.T) {
	td := domain(t, "cluster.local")
	got, err := spiffeid.PeerFromCertificate(td, leaf(t, func(*x509.Certificate) {}))
	if err != nil {
		t.Fatal(err)
	}
	id, _ := spiffeid.ForServiceAccount(td, "a", "b")
	want := spiffeid.Identity{ID: id, Namespace: "a", ServiceAccount: "b", Pod: pod()}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b spiffeid.ID) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	got, err = spiffeid.PeerFromCertificate(td, leaf(t, func(c *x509.Certificate) { c.ExtraExtensions = nil }))
	if err != nil || !got.Pod.IsZero() {
		t.Errorf("a leaf without a pod: got %+v, %v", got, err)
	}
}

func TestPeerFromCertificateRefuses(t *testing.T) {
	uris := func(s ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) {
			c.URIs = nil
			for _, s := range s {
				c.URIs = append(c.URIs, uri(t, s))
			}
		}
	}
	for name, tc := range map[string]struct {
		change func(*x509.Certificate)
		want   error
	}{
		"no URI":                         {uris(), spiffeid.ErrNotSVID},
		"a DNS name alone":               {func(c *x509.Certificate) { c.URIs = nil; c.DNSNames = []string{"cluster.local"} }, spiffeid.ErrNotSVID},
		"two URIs, the first is ours":    {uris("spiffe://cluster.local/ns/a/sa/b", "spiffe://cluster.local/ns/c/sa/d"), spiffeid.ErrNotSVID},
		"two URIs, one of another kind":  {uris("spiffe://cluster.local/ns/a/sa/b", "https://example.com"), spiffeid.ErrNotSVID},
		"the same URI twice":             {uris("spiffe://cluster.local/ns/a/sa/b", "spiffe://cluster.local/ns/a/sa/b"), spiffeid.ErrNotSVID},
		"a URI of another scheme":        {uris("https://cluster.local/ns/a/sa/b"), spiffeid.ErrNotSVID},
		"an escaped slash":               {uris("spiffe://cluster.local/ns/a%2Fsa%2Fb/sa/c"), spiffeid.ErrNotSVID},
		"a query":                        {uris("spiffe://cluster.local/ns/a/sa/b?x=y"), spiffeid.ErrNotSVID},
		"a fragment":                     {uris("spiffe://cluster.local/ns/a/sa/b#x"), spiffeid.ErrNotSVID},
		"user information":               {uris("spiffe://u@cluster.local/ns/a/sa/b"), spiffeid.ErrNotSVID},
		"a foreign trust domain":         {uris("spiffe://cluster.local.evil/ns/a/sa/b"), spiffeid.ErrTrustDomain},
		"a parent of our trust domain":   {uris("spiffe://local/ns/a/sa/b"), spiffeid.ErrTrustDomain},
		"the trust domain itself":        {uris("spiffe://cluster.local"), spiffeid.ErrNotServiceAccount},
		"a path that is no account's":    {uris("spiffe://cluster.local/ns/a/sa/b/c"), spiffeid.ErrNotServiceAccount},
		"a CA":                           {func(c *x509.Certificate) { c.IsCA = true }, spiffeid.ErrNotSVID},
		"a leaf that may sign CRLs":      {func(c *x509.Certificate) { c.KeyUsage |= x509.KeyUsageCRLSign }, spiffeid.ErrNotSVID},
		"a leaf that may not sign":       {func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, spiffeid.ErrNotSVID},
		"a pod extension that is broken": {func(c *x509.Certificate) { c.ExtraExtensions[0].Value = []byte{0x30, 0} }, spiffeid.ErrMalformedPod},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := spiffeid.PeerFromCertificate(domain(t, "cluster.local"), leaf(t, tc.change))
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %+v, %v; want %v", got, err, tc.want)
			}
			if got != (spiffeid.Identity{}) {
				t.Errorf("an identity came with the error: %+v", got)
			}
		})
	}
}

func TestPodExtension(t *testing.T) {
	ext, err := spiffeid.MarshalPod(spiffeid.Pod{Name: "p", UID: "u", Node: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if ext.Critical {
		t.Error("the extension is critical")
	}
	if got, want := hex.EncodeToString(ext.Value), "3009"+"0c0170"+"0c0175"+"0c016e"; got != want {
		t.Errorf("value %s, want %s", got, want)
	}
	oid, err := asn1.Marshal(ext.Id)
	if err != nil {
		t.Fatal(err)
	}
	// 2.25 is 0x69; 1613965065 in base 128 is 6 1 76 78 9.
	if want := []byte{6, 6, 0x69, 0x86, 0x81, 0xcc, 0xce, 0x09}; !slices.Equal(oid, want) {
		t.Errorf("OID % x, want % x", oid, want)
	}
}

func TestMarshalPodRefuses(t *testing.T) {
	for name, p := range map[string]spiffeid.Pod{
		"no name":               {UID: "u"},
		"no UID":                {Name: "p"},
		"a line break":          {Name: "p\nq", UID: "u"},
		"a text that is long":   {Name: strings.Repeat("p", 254), UID: "u"},
		"text that is not text": {Name: "p", UID: "\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := spiffeid.MarshalPod(p); !errors.Is(err, spiffeid.ErrMalformedPod) {
				t.Errorf("got %v, want ErrMalformedPod", err)
			}
		})
	}
}

func TestPodFromCertificateRefuses(t *testing.T) {
	for name, der := range map[string]string{
		"nothing":                  "",
		"two texts":                "3006" + "0c0170" + "0c0175",
		"four texts":               "300c" + "0c0170" + "0c0175" + "0c016e" + "0c0178",
		"a PrintableString":        "3009" + "130170" + "0c0175" + "0c016e",
		"bytes after the sequence": "3009" + "0c0170" + "0c0175" + "0c016e" + "00",
		"a length not minimal":     "308109" + "0c0170" + "0c0175" + "0c016e",
		"a length beyond the end":  "3009" + "0c0170" + "0c0175" + "0c056e",
		"an empty UID":             "3008" + "0c0170" + "0c00" + "0c016e",
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := hex.DecodeString(der)
			if err != nil {
				t.Fatal(err)
			}
			cert := &x509.Certificate{Extensions: []pkix.Extension{{Id: spiffeid.PodExtensionOID(), Value: raw}}}
			if p, err := spiffeid.PodFromCertificate(cert); !errors.Is(err, spiffeid.ErrMalformedPod) {
				t.Errorf("got %+v, %v; want ErrMalformedPod", p, err)
			}
		})
	}
	if _, err := spiffeid.PodFromCertificate(&x509.Certificate{}); !errors.Is(err, spiffeid.ErrNoPod) {
		t.Errorf("no extension: got %v, want ErrNoPod", err)
	}
}

// What is read as a pod is exactly what is written for it: there is one encoding.
func FuzzPodFromCertificate(f *testing.F) {
	for _, p := range []spiffeid.Pod{pod(), {Name: "p", UID: "u"}} {
		ext, err := spiffeid.MarshalPod(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(ext.Value)
	}
	f.Add([]byte{0x30, 0x80, 0, 0})
	f.Fuzz(func(t *testing.T, der []byte) {
		cert := &x509.Certificate{Extensions: []pkix.Extension{{Id: spiffeid.PodExtensionOID(), Value: der}}}
		p, err := spiffeid.PodFromCertificate(cert)
		if err != nil {
			return
		}
		ext, err := spiffeid.MarshalPod(p)
		if err != nil || !slices.Equal(ext.Value, der) {
			t.Errorf("% x reads as %+v, which is written % x, %v", der, p, ext.Value, err)
		}
	})
}
