package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/source"
)

func (p *problems) kinds() (out []string) {
	for _, e := range p.moments.Since(0) {
		out = append(out, string(e.Kind)+" "+e.Message)
	}
	return out
}

func newProblems() *problems {
	return &problems{moments: &journal.Journal{}, log: slog.New(slog.DiscardHandler)}
}

func TestAProblemIsToldOnceAndWhatIsNotReadQuietly(t *testing.T) {
	p := newProblems()
	bad := source.Problem{Severity: source.Refused, File: "a.yaml", Message: "cannot be read"}
	var other []source.Problem
	for _, file := range []string{"1", "2", "3", "4", "5", "6", "7"} {
		other = append(other, source.Problem{Severity: source.Ignored, File: file, Message: "is not read"})
	}
	for range 2 {
		p.set(append([]source.Problem{bad}, other...))
	}
	want := []string{
		"problem a.yaml: cannot be read",
		"unread not read: 1: is not read; 2: is not read; 3: is not read; 4: is not read; 5: is not read; and 2 more",
	}
	if got := p.kinds(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	if got := len(p.get()); got != 8 {
		t.Errorf("%d problems are shown, want 8", got)
	}
}

func TestADamagedCAIsAProblemUntilItIsMended(t *testing.T) {
	p := newProblems()
	p.set([]source.Problem{{Severity: source.Refused, File: "a.yaml", Message: "cannot be read"}})
	p.setCA("/state/ca", errors.New("/state/ca: CA does not parse"), true)
	if list := p.get(); len(list) != 2 || list[0].File != "/state/ca" || !strings.Contains(list[0].Message, "last good one stays in use") {
		t.Errorf("problems %v", list)
	}
	p.setCA("/state/ca", nil, true)
	if list := p.get(); len(list) != 1 {
		t.Errorf("problems %v once it is mended", list)
	}
	got := p.kinds()
	if len(got) != 3 || !strings.HasPrefix(got[1], "problem /state/ca: CA does not parse") || got[2] != "ca-ready CA is good again" {
		t.Errorf("told %q", got)
	}
}

func TestAFileThatWasRefusedIsToldToBeReadAgain(t *testing.T) {
	p := newProblems()
	p.dir = t.TempDir()
	for _, file := range []string{"still.yaml", "mended.yaml", "warned.yaml"} {
		if err := os.WriteFile(filepath.Join(p.dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(severity source.Severity, files ...string) (out []source.Problem) {
		for _, file := range files {
			out = append(out, source.Problem{Severity: severity, File: file, Message: "x"}, source.Problem{Severity: severity, File: file, Message: "y"})
		}
		return out
	}
	p.set(append(of(source.Refused, "", "gone.yaml", "mended.yaml", "still.yaml"), of(source.Warning, "warned.yaml")...))
	before := len(p.kinds())
	p.set(of(source.Refused, "still.yaml")[:1])
	want := []string{
		"mended the directory is read again",
		"mended gone.yaml is gone, and what was wrong with it",
		"mended mended.yaml is read again",
		"mended warned.yaml: nothing is wrong with it any more",
	}
	if got := p.kinds()[before:]; !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestWhatWasToldIsTakenBackWhenItIsMended(t *testing.T) {
	const file = "shop.yaml"
	about := func(s source.Severity, object, path string) source.Problem {
		return source.Problem{Severity: s, File: file, Document: 1, Object: object, Path: path, Message: "x"}
	}
	again := func(p source.Problem) source.Problem { p.Since = p.Since.Add(1); return p }
	warning, other := about(source.Warning, "HTTPRoute/default/a", "spec.x"), about(source.Warning, "HTTPRoute/default/b", "spec.x")
	refused, second := about(source.Refused, "HTTPRoute/default/a", "spec.y"), about(source.Refused, "HTTPRoute/default/a", "spec.z")
	unreadable := source.Problem{Severity: source.Refused, File: file, Message: "cannot be read"}
	type list = []source.Problem
	for name, c := range map[string]struct {
		before, now list
		want        []string
	}{
		"a file's only warning":                 {list{warning}, nil, []string{"mended shop.yaml: nothing is wrong with it any more"}},
		"one object's warning of several":       {list{warning, other}, list{other}, []string{"mended shop.yaml HTTPRoute/default/a: nothing is wrong with it any more"}},
		"one refused field of two":              {list{refused, second}, list{second}, []string{"mended shop.yaml HTTPRoute/default/a: spec.y is mended"}},
		"what was refused, with a warning left": {list{refused, warning}, list{warning}, []string{"mended shop.yaml is read again"}},
		"nothing, if an edit leaves it":         {list{refused}, list{again(refused)}, []string{"problem " + refused.String()}},
		"nothing, if something else hides it":   {list{warning}, list{refused}, []string{"problem " + refused.String()}},
		"nothing, if the file cannot be read":   {list{warning, refused}, list{unreadable}, []string{"problem shop.yaml: cannot be read"}},
		"an object that is in no file": {
			list{{Severity: source.Refused, Object: "Secret/default/s", Message: "x"}},
			nil,
			[]string{"mended Secret/default/s: nothing is wrong with it any more"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProblems()
			p.dir = t.TempDir()
			if err := os.WriteFile(filepath.Join(p.dir, file), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			p.set(c.before)
			before := len(p.kinds())
			p.set(c.now)
			if got := p.kinds()[before:]; !slices.Equal(got, c.want) {
				t.Errorf("told %q, want %q", got, c.want)
			}
		})
	}
}

func TestALeaseThatCannotBeWrittenIsAProblemUntilItCan(t *testing.T) {
	p := newProblems()
	p.setLease("Lease/aether-system/aether-controller", errors.New("etcdserver: request timed out"))
	if got := p.get(); len(got) != 1 || got[0].Object != "Lease/aether-system/aether-controller" || !strings.Contains(got[0].Message, "etcdserver: request timed out") {
		t.Errorf("got %+v", got)
	}
	p.setLease("Lease/aether-system/aether-controller", nil)
	if got := p.get(); len(got) != 0 {
		t.Errorf("of what is well it says %+v", got)
	}
}

func TestATrustBundleWhosePlaceIsTakenIsToldOnce(t *testing.T) {
	p := newProblems()
	for _, step := range []struct{ taken, fresh []string }{
		{[]string{"a", "b"}, []string{"a", "b"}},
		{[]string{"a", "b"}, nil},
		{[]string{"b", "c"}, []string{"c"}},
		{nil, nil},
	} {
		if fresh := p.setTrust(step.taken); !slices.Equal(fresh, step.fresh) {
			t.Errorf("of %v new are %v, want %v", step.taken, fresh, step.fresh)
		}
		if list := p.get(); len(list) != len(step.taken) {
			t.Errorf("of %v problems are %v", step.taken, list)
		}
	}
	if got := strings.Join(p.kinds(), "\n"); strings.Count(got, "problem ") != 3 || strings.Count(got, "mended ") != 3 {
		t.Errorf("told:\n%s", got)
	}
}

func TestACollectorIsAProblemUntilItIsMendedAndToldOnce(t *testing.T) {
	p := newProblems()
	const at = "otel.obs:4317"
	p.setCollector(at, "")
	p.setCollector(at, "CollectorUnreachable: of 1 of 2")
	since := p.get()[0].Since
	p.setCollector(at, "CollectorUnreachable: of 2 of 2")
	list := p.get()
	if len(list) != 1 || list[0].Object != "Collector/"+at || list[0].Message != "CollectorUnreachable: of 2 of 2" || !list[0].Since.Equal(since) {
		t.Errorf("%+v", list)
	}
	p.setCollector(at, "")
	if list := p.get(); len(list) != 0 {
		t.Errorf("mended, and still: %+v", list)
	}
	want := []string{"problem Collector/otel.obs:4317: CollectorUnreachable: of 1 of 2", "mended Collector/otel.obs:4317: what is exported arrives again"}
	if got := p.kinds(); !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
}

func TestProxiesThatAreAheadAreAProblemThatNamesWhatHelps(t *testing.T) {
	p := newProblems()
	p.release = "edge"
	p.setAhead([]string{"a"})
	p.setAhead([]string{"a", "b", "c", "d", "e", "f", "g"})
	list := p.get()
	if len(list) != 1 {
		t.Fatalf("problems %v, want one", list)
	}
	for _, words := range []string{"a, b, c, d, e and 2 more", "aetherctl discovery reset-epoch --release-namespace edge"} {
		if !strings.Contains(list[0].String(), words) {
			t.Errorf("%s: want %q in it", list[0], words)
		}
	}
	p.setAhead(nil)
	if list := p.get(); len(list) > 0 {
		t.Errorf("problems %v when nobody is ahead", list)
	}
	if got := p.kinds(); len(got) != 2 || !strings.HasPrefix(got[0], "problem ") || !strings.HasPrefix(got[1], "mended ") {
		t.Errorf("told %q", got)
	}
}
