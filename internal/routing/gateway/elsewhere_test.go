package gateway

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
)

func TestTheHostsOfOtherHTTPSSectionsOfThePortAreElsewhere(t *testing.T) {
	section := func(name, host string, port uint32, secure bool) Section {
		p := key.Port{Gateway: key.Name{Namespace: "infra", Name: "web"}, Port: port}
		return Section{Name: name, Host: host, Secure: secure, Table: key.NewTable(p, key.Name{}, name, secure)}
	}
	rejected := section("rejected", "r.example", 443, true)
	rejected.Rejected = condition.Problem{Reason: "Any"}
	list := []Section{
		section("a", "a.example", 443, true), section("wild", "*.example", 443, true), section("any", "*", 443, true),
		section("deep", "*.deep.example", 443, true), section("other-port", "b.example", 8443, true),
		section("plain", "c.example", 80, false), section("plain-any", "*", 80, false), rejected,
	}
	for name, want := range map[string][]string{
		"a":          {"*", "*.deep.example", "*.example"},
		"wild":       {"*", "*.deep.example", "a.example"},
		"any":        {"*.deep.example", "*.example", "a.example"},
		"deep":       {"*", "*.example", "a.example"},
		"other-port": nil, "plain": nil, "plain-any": nil, "rejected": nil,
	} {
		i := slices.IndexFunc(list, func(s Section) bool { return s.Name == name })
		got := Elsewhere(list, list[i])
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	crowded := func() int {
		markCrowds(list)
		n := 0
		for _, s := range list {
			if s.Crowded {
				n++
			}
		}
		return n
	}
	list = append(list, section("below", "x.example", 443, true))
	for i := range MaxMutual - 5 { // four are there, and one below
		list = append(list, section(fmt.Sprintf("more-%d", i), fmt.Sprintf("h%d.other", i), 443, true))
	}
	if n := crowded(); n > 0 {
		t.Errorf("%d of %d sections are crowded", n, MaxMutual)
	}
	if got := len(Elsewhere(list, list[1])); got != MaxMutual-1 {
		t.Errorf("as many as each can know: %d are elsewhere, want %d", got, MaxMutual-1)
	}
	list = append(list, section("one-more", "one-more.other", 443, true))
	if n := crowded(); n != MaxMutual+1 {
		t.Errorf("%d of %d sections are crowded", n, MaxMutual+1)
	}
	got := Elsewhere(list, list[1])
	slices.Sort(got)
	if diff := cmp.Diff([]string{"*.deep.example", "a.example", "x.example"}, got); diff != "" {
		t.Errorf("of very many only those that it would serve otherwise (-want +got):\n%s", diff)
	}
}
