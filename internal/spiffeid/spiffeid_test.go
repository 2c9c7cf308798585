package spiffeid_test

import (
	"errors"
	"strings"
	"testing"

	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/spiffeid"
)

func domain(t testing.TB, name string) spiffeid.TrustDomain {
	t.Helper()
	td, err := spiffeid.ParseTrustDomain(name)
	if err != nil {
		t.Fatal(err)
	}
	return td
}

func TestParseTrustDomain(t *testing.T) {
	for name, tc := range map[string]struct {
		in string
		ok bool
	}{
		"a name is accepted":                         {"cluster.local", true},
		"an ID in place of a name is refused":        {"spiffe://cluster.local/ns/a/sa/b", false},
		"a scheme is refused":                        {"spiffe://cluster.local", false},
		"a port is refused":                          {"cluster.local:8443", false},
		"upper case is refused":                      {"Cluster.local", false},
		"an empty name is refused":                   {"", false},
		"a name with a path is refused":              {"cluster.local/x", false},
		"white space around the name is not ignored": {" cluster.local", false},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := spiffeid.ParseTrustDomain(tc.in); (err == nil) != tc.ok {
				t.Errorf("ParseTrustDomain(%q) = %v, want ok %v", tc.in, err, tc.ok)
			}
		})
	}
}

func TestForServiceAccount(t *testing.T) {
	td := domain(t, "cluster.local")
	for name, tc := range map[string]struct {
		namespace, account string
		want               string // empty: refused
	}{
		"the shared proxy":                       {"aether-system", spiffeid.SharedProxyAccount, "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy"},
		"an account with dots":                   {"a", "b.c", "spiffe://cluster.local/ns/a/sa/b.c"},
		"an empty namespace is refused":          {"", "b", ""},
		"an empty account is refused":            {"a", "", ""},
		"a slash cannot add a segment":           {"a/sa/b", "c", ""},
		"a slash in the account is refused":      {"a", "b/c", ""},
		"dots cannot climb":                      {"..", "b", ""},
		"upper case is refused":                  {"A", "b", ""},
		"a namespace that is too long":           {strings.Repeat("n", 64), "b", ""},
		"a percent sign is refused":              {"a", "b%2fc", ""},
		"a namespace with a dot is not a label":  {"a.b", "c", ""},
		"an account of 253 bytes is still one":   {"a", strings.Repeat("s", 253), "spiffe://cluster.local/ns/a/sa/" + strings.Repeat("s", 253)},
		"an account of 254 bytes is one no more": {"a", strings.Repeat("s", 254), ""},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := spiffeid.ForServiceAccount(td, tc.namespace, tc.account)
			if tc.want == "" {
				if !errors.Is(err, spiffeid.ErrNotServiceAccount) {
					t.Fatalf("got %q, %v; want ErrNotServiceAccount", id, err)
				}
				return
			}
			if err != nil || id.String() != tc.want {
				t.Fatalf("got %q, %v; want %q", id, err, tc.want)
			}
			ns, sa, err := spiffeid.Parse(id)
			if err != nil || ns != tc.namespace || sa != tc.account {
				t.Errorf("Parse(%q) = %q, %q, %v", id, ns, sa, err)
			}
		})
	}
	if _, err := spiffeid.ForServiceAccount(spiffeid.TrustDomain{}, "a", "b"); err == nil {
		t.Error("an ID without a trust domain was made")
	}
}

func TestController(t *testing.T) {
	id, err := spiffeid.Controller(domain(t, "mesh.example"), "aether-system")
	if want := "spiffe://mesh.example/ns/aether-system/sa/aether-controller"; err != nil || id.String() != want {
		t.Errorf("got %q, %v; want %q", id, err, want)
	}
}

func TestParseRefusesOtherShapes(t *testing.T) {
	for _, s := range []string{
		"spiffe://cluster.local",
		"spiffe://cluster.local/ns/a/sa",
		"spiffe://cluster.local/ns/a/sa/b/c",
		"spiffe://cluster.local/x/ns/a/sa/b",
		"spiffe://cluster.local/sa/a/ns/b",
		"spiffe://cluster.local/NS/a/sa/b",
		"spiffe://cluster.local/ns/a_b/sa/c",
		"spiffe://cluster.local/ns/a/sa/B",
	} {
		if ns, sa, err := spiffeid.Parse(gospiffeid.RequireFromString(s)); !errors.Is(err, spiffeid.ErrNotServiceAccount) {
			t.Errorf("Parse(%q) = %q, %q, %v; want ErrNotServiceAccount", s, ns, sa, err)
		}
	}
	if _, _, err := spiffeid.Parse(spiffeid.ID{}); !errors.Is(err, spiffeid.ErrNotServiceAccount) {
		t.Errorf("the zero ID gave %v", err)
	}
}

func TestDedicatedAccount(t *testing.T) {
	if got, err := spiffeid.DedicatedAccount("edge", "coxswain"); err != nil || got != "edge-coxswain" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := spiffeid.DedicatedAccount(strings.Repeat("g", 244), "coxswain"); err != nil || len(got) != 253 {
		t.Errorf("253 bytes: got %d bytes, %v", len(got), err)
	}
	if _, err := spiffeid.DedicatedAccount(strings.Repeat("g", 245), "coxswain"); !errors.Is(err, spiffeid.ErrNameTooLong) {
		t.Errorf("254 bytes: got %v, want ErrNameTooLong", err)
	}
}
