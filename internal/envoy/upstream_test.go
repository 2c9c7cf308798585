package envoy_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
)

func TestATLSClusterThatWouldBelieveAnyoneIsRefused(t *testing.T) {
	tests := map[string]struct {
		spoil func(*envoy.UpstreamTLS)
		want  string
	}{
		"no name to look for":          {func(c *envoy.UpstreamTLS) { c.Names = nil }, "names: "},
		"every name will do":           {func(c *envoy.UpstreamTLS) { c.Names[0].Value = "*" }, `name "*": `},
		"an empty name":                {func(c *envoy.UpstreamTLS) { c.Names[0].Value = "" }, `name "": `},
		"a name in upper case":         {func(c *envoy.UpstreamTLS) { c.Names[0].Value = "A.example" }, `name "A.example": `},
		"a URI without a scheme":       {func(c *envoy.UpstreamTLS) { c.Names[0] = envoy.SubjectName{URI: true, Value: "//a"} }, `name "//a": `},
		"no authorities":               {func(c *envoy.UpstreamTLS) { c.Trust = "" }, "trust: "},
		"authorities from two places":  {func(c *envoy.UpstreamTLS) { c.TrustFile = "/etc/ca" }, "trust: "},
		"a file with a line break":     {func(c *envoy.UpstreamTLS) { c.Trust, c.TrustFile = "", "/etc\n/ca" }, "trust file: "},
		"no server name":               {func(c *envoy.UpstreamTLS) { c.ServerName = "" }, `server name "": `},
		"a wildcard as server name":    {func(c *envoy.UpstreamTLS) { c.ServerName = "*.example" }, `server name "*.example": `},
		"an address as server name":    {func(c *envoy.UpstreamTLS) { c.ServerName = "10.0.0.1" }, `server name "10.0.0.1": `},
		"a secret that cannot be read": {func(c *envoy.UpstreamTLS) { c.Certificate = "a b" }, `secret "a b": `},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := envoy.UpstreamTLS{ServerName: "a.example", Names: []envoy.SubjectName{{Value: "a.example"}}, Trust: "ns/p/backend-ca"}
			tt.spoil(&c)
			_, err := envoy.Cluster{Name: "ns/a/443", TLS: &c}.Resource()
			if err == nil {
				t.Fatal("was accepted")
			}
			if want := "cluster ns/a/443: TLS: " + tt.want; !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got  %s\nwant %s…", err, want)
			}
		})
	}
}

func TestAuthoritiesAreWrittenInOneForm(t *testing.T) {
	one := newSecret(t, "x", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), "one").Chain
	two := newSecret(t, "x", ed25519.NewKeyFromSeed(bytes.Repeat([]byte("2"), ed25519.SeedSize)), "two").Chain
	clean, err := envoy.Trust{Name: "ns/p/backend-ca", Authorities: slices.Concat(one, two)}.Resource()
	if err != nil {
		t.Fatal(err)
	}
	if clean.TypeURL != envoy.SecretType {
		t.Errorf("is a %s", clean.TypeURL)
	}
	dressed := slices.Concat([]byte("# the first\r\n"), bytes.ReplaceAll(one, []byte("\n"), []byte("\r\n")), two, one)
	again, err := envoy.Trust{Name: "ns/p/backend-ca", Authorities: dressed}.Resource()
	if err != nil {
		t.Fatal(err)
	}
	if clean.Hash != again.Hash {
		t.Error("the same authorities in another dress give another resource")
	}
}

func TestABundleThatIsNotWholeIsRefused(t *testing.T) {
	s := newSecret(t, "x", ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)), "one")
	damaged := bytes.Replace(s.Chain, []byte("M"), []byte("!"), 1)
	for name, bundle := range map[string][]byte{
		"nothing":              nil,
		"text":                 []byte("certificate"),
		"a key":                s.Key,
		"a key behind":         slices.Concat(s.Chain, s.Key),
		"cut off":              s.Chain[:len(s.Chain)-40],
		"damaged":              damaged,
		"damaged before good":  slices.Concat(damaged, s.Chain),
		"damaged behind good":  slices.Concat(s.Chain, damaged),
		"not a certificate":    []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		"more than a megabyte": bytes.Repeat(s.Chain, 1<<20/len(s.Chain)+1),
	} {
		_, err := envoy.Trust{Name: "ns/p/backend-ca", Authorities: bundle, Origin: []object.Key{{Kind: object.ConfigMap, Name: "ca"}}}.Resource()
		if e, ok := errors.AsType[*envoy.InvalidError](err); !ok || len(e.Origin) != 1 {
			t.Errorf("%s: got %v, want an InvalidError with an origin", name, err)
		}
	}
}
