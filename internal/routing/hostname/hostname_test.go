package hostname_test

import (
	"strings"
	"testing"

	"aether.io/aether/internal/routing/hostname"
)

func TestIntersect(t *testing.T) {
	for name, c := range map[string]struct{ a, b, want string }{
		"equal names":                             {"a.example.com", "a.example.com", "a.example.com"},
		"any host takes the other":                {"*", "*.example.com", "*.example.com"},
		"a wildcard covers a name":                {"*.example.com", "a.example.com", "a.example.com"},
		"a wildcard covers several labels":        {"*.example.com", "a.b.example.com", "a.b.example.com"},
		"a wildcard covers a narrower one":        {"*.example.com", "*.b.example.com", "*.b.example.com"},
		"a wildcard does not cover its own end":   {"*.example.com", "example.com", ""},
		"a wildcard wants a whole label":          {"*.example.com", "badexample.com", ""},
		"different names":                         {"a.example.com", "b.example.com", ""},
		"different wildcards":                     {"*.example.com", "*.example.net", ""},
		"a name does not cover a wildcard":        {"a.example.com", "*.a.example.com", ""},
		"any host and any host":                   {"*", "*", "*"},
		"a top-level wildcard covers a lower one": {"*.com", "*.example.com", "*.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
				got, ok := hostname.Intersect(args[0], args[1])
				if got != c.want || ok != (c.want != "") {
					t.Errorf("Intersect(%q, %q) = %q, %v; want %q", args[0], args[1], got, ok, c.want)
				}
			}
		})
	}
}

func TestCompareSpecificity(t *testing.T) {
	order := []string{"a.example.com", "*.a.example.com", "*.example.com", "*.com", "*"}
	for i, a := range order {
		for j, b := range order {
			if got := hostname.CompareSpecificity(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("CompareSpecificity(%q, %q) = %d", a, b, got)
			}
		}
	}
}

func TestTheNameOfARouteThatIsMostPrecise(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string
		host  string
		want  string
	}{
		"none":                                {host: "*.example.com", want: ""},
		"the same":                            {names: []string{"a.example.com"}, host: "a.example.com", want: "a.example.com"},
		"a wildcard":                          {names: []string{"*.com", "b.example.com"}, host: "a.example.com", want: "*.com"},
		"the longer wildcard":                 {names: []string{"*.com", "*.example.com"}, host: "a.example.com", want: "*.example.com"},
		"a short exact one before a wildcard": {names: []string{"*.example.com", "a.example.com"}, host: "a.example.com", want: "a.example.com"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := hostname.Own(tc.names, tc.host); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestARouteThatNamesNoHostIsAfterThoseThatNameOne(t *testing.T) {
	order := []string{"a.example.com", "a.test", "*.example.com", "*.com", ""}
	for i, a := range order {
		for j, b := range order {
			if got := hostname.ComparePrecedence(a, b); (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("ComparePrecedence(%q, %q) = %d", a, b, got)
			}
		}
	}
}

func TestPatternsAreWhatCoversAHostTheMostSpecificFirst(t *testing.T) {
	for host, want := range map[string]string{
		"a.b.example": "a.b.example *.b.example *.example *",
		"*.b.example": "*.b.example *.example *",
		"example":     "example *",
		"*.example":   "*.example *",
		"*":           "*",
	} {
		list := hostname.Patterns(host)
		if got := strings.Join(list, " "); got != want {
			t.Errorf("%s: got %s, want %s", host, got, want)
		}
		for i, p := range list {
			if !hostname.Covers(p, host) || i > 0 && hostname.CompareSpecificity(list[i-1], p) >= 0 {
				t.Errorf("%s: %s is out of place in %v", host, p, list)
			}
		}
	}
}
