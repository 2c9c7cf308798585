package rule_test

import (
	"testing"

	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/rule"
)

// The specification orders by the text "{namespace}/{name}", in which "-" is before "/".
func TestOfRoutesOfOneAgeTheFirstByNamespaceAndNameIsFirst(t *testing.T) {
	for name, c := range map[string]struct{ first, second key.Name }{
		"by name":                        {key.Name{Namespace: "a", Name: "a"}, key.Name{Namespace: "a", Name: "b"}},
		"by namespace":                   {key.Name{Namespace: "a", Name: "b"}, key.Name{Namespace: "b", Name: "a"}},
		"a namespace that goes on":       {key.Name{Namespace: "ab", Name: "b"}, key.Name{Namespace: "abc", Name: "a"}},
		"a namespace that goes on in -b": {key.Name{Namespace: "a-b", Name: "z"}, key.Name{Namespace: "a", Name: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := rule.Match{From: c.first}, rule.Match{From: c.second}
			if a.Compare(b) >= 0 || b.Compare(a) <= 0 {
				t.Errorf("%s is not before %s", c.first, c.second)
			}
		})
	}
}
