package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// flagged is flags as given.
func flagged(t *testing.T, args ...string) flags {
	t.Helper()
	var f flags
	cmd := &cobra.Command{}
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestWhatIsWatchedHasTheReleasesOwnNamespace(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"all":                     {nil, nil},
		"all, if none are given":  {[]string{"--watch-namespaces="}, nil},
		"sorted, its own with it": {[]string{"--watch-namespaces=shop,billing"}, []string{"aether-system", "billing", "shop"}},
		"its own is among them":   {[]string{"--watch-namespaces=shop,aether-system,shop"}, []string{"aether-system", "shop"}},
		"only its own":            {[]string{"--watch-namespaces=edge", "--release-namespace=edge"}, []string{"edge"}},
	} {
		f := flagged(t, c.args...)
		if got := f.watched(); !slices.Equal(got, c.want) || (got == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if err := f.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	var many []string
	for i := range 66 {
		many = append(many, "n"+strings.Repeat("x", i))
	}
	for arg, want := range map[string]string{
		"--gateway-class=A b":                           `--gateway-class "A b" is not a name`,
		"--gateway-class=":                              `--gateway-class "" is not a name`,
		"--watch-namespaces=Shop":                       `--watch-namespaces: "Shop" is not the name of a namespace`,
		"--watch-namespaces=" + strings.Join(many, ","): "--watch-namespaces: 67 are more than 65",
	} {
		f := flagged(t, arg)
		if err := f.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v, want %s", arg, err, want)
		}
	}
}

func TestAnotherReleaseIsAProblemUntilItIsGone(t *testing.T) {
	p := newProblems()
	p.setOverlap(errors.New("another release has namespace shop"))
	if list := p.get(); len(list) != 1 || !strings.Contains(list[0].String(), "namespace shop. This one writes nothing") {
		t.Errorf("problems %v", list)
	}
	p.setClaims(errors.New("no route"))
	if list := p.get(); len(list) != 2 || !strings.Contains(list[1].Message, "stays as it is: no route") {
		t.Errorf("problems %v", list)
	}
	p.setOverlap(nil)
	p.setClaims(nil)
	if list := p.get(); len(list) != 0 {
		t.Errorf("problems %v once it is gone", list)
	}
	if got := p.kinds(); len(got) != 2 || !strings.HasPrefix(got[1], "mended no other release") {
		t.Errorf("told %q", got)
	}
}
