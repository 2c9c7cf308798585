package claim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at is an entry of a release, made so many seconds after the first.
func at(second int, namespace, class string, namespaces ...string) entry {
	e := entry{
		Namespace: namespace, Release: "aether", Since: time.Unix(int64(second), 0),
		Watches: Watches{Class: class, Namespaces: namespaces}, Name: Watches{Class: class, Namespaces: namespaces}.name(),
	}
	return e
}

func (e entry) holding() entry {
	e.Holds = true
	return e
}

func TestWhoHasIt(t *testing.T) {
	for name, c := range map[string]struct {
		others []entry // of other releases, and of this one, which is in "b"
		own    entry
		want   map[string]string // by namespace of the release, what it has
	}{
		"nobody else is there": {own: at(1, "b", "coxswain"), want: map[string]string{}},
		"two that share nothing": {
			others: []entry{at(0, "a", "one", "a", "x").holding()}, own: at(1, "b", "two", "b", "y"), want: map[string]string{},
		},
		"the older of two that watch all": {
			others: []entry{at(0, "a", "one").holding()}, own: at(1, "b", "two"), want: map[string]string{"a": "all namespaces"},
		},
		"one that watches all and one that watches some": {
			others: []entry{at(0, "a", "one").holding()}, own: at(1, "b", "two", "b", "y"),
			want: map[string]string{"a": "namespace b, namespace y"},
		},
		"one that watches some and one that watches all": {
			others: []entry{at(0, "a", "one", "a", "x").holding()}, own: at(1, "b", "two"),
			want: map[string]string{"a": "namespace a, namespace x"},
		},
		"a namespace in common": {
			others: []entry{at(0, "a", "one", "a", "x").holding()}, own: at(1, "b", "two", "b", "x"),
			want: map[string]string{"a": "namespace x"},
		},
		"the namespace of the other": {
			others: []entry{at(0, "a", "one", "a").holding()}, own: at(1, "b", "two", "a", "b"),
			want: map[string]string{"a": "namespace a"},
		},
		"a class in common": {
			others: []entry{at(0, "a", "one", "a").holding()}, own: at(1, "b", "one", "b"),
			want: map[string]string{"a": "GatewayClass one"},
		},
		"two others": {
			others: []entry{at(0, "a", "one", "a", "x").holding(), at(0, "c", "three", "c", "y").holding()}, own: at(1, "b", "two", "b", "x", "y"),
			want: map[string]string{"a": "namespace x", "c": "namespace y"},
		},
		"the younger of two that hold is not minded":   {others: []entry{at(2, "a", "one").holding()}, own: at(1, "b", "two").holding(), want: map[string]string{}},
		"the younger of two that wait is not minded":   {others: []entry{at(2, "a", "one")}, own: at(1, "b", "two"), want: map[string]string{}},
		"the older of two that wait":                   {others: []entry{at(0, "a", "one")}, own: at(1, "b", "two"), want: map[string]string{"a": "all namespaces"}},
		"of two made in one second by name, the first": {others: []entry{at(1, "a", "one")}, own: at(1, "b", "two"), want: map[string]string{"a": "all namespaces"}},
		"of two made in one second by name, the last":  {others: []entry{at(1, "c", "one")}, own: at(1, "b", "two"), want: map[string]string{}},
		"an older one that waits takes nothing":        {others: []entry{at(0, "a", "one")}, own: at(1, "b", "two").holding(), want: map[string]string{}},
		"a younger one that holds keeps it":            {others: []entry{at(2, "a", "one").holding()}, own: at(1, "b", "two"), want: map[string]string{"a": "all namespaces"}},
		"more is watched than before: what is new is whose it is": {
			others: []entry{at(5, "a", "one", "a", "x").holding(), at(1, "b", "two", "b", "y").holding()}, own: at(9, "b", "two", "b", "x", "y"),
			want: map[string]string{"a": "namespace x"},
		},
		"less is watched than before: what stays is held already": {
			others: []entry{at(5, "a", "one", "a", "y"), at(1, "b", "two", "b", "x", "y").holding()}, own: at(9, "b", "two", "b", "y"),
			want: map[string]string{},
		},
		"some instead of all": {
			others: []entry{at(5, "a", "one", "a", "y"), at(1, "b", "two").holding()}, own: at(9, "b", "two", "b", "y"),
			want: map[string]string{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, r := range rivals(append(c.others, c.own), "b", c.own.Watches) {
				got[r.Namespace] = names(r.items)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Of any two that both hold, or both wait, exactly one gives way.
func TestOneOfTwoGivesWay(t *testing.T) {
	sets := []Watches{{Class: "one"}, {Class: "two"}, {Class: "one", Namespaces: []string{"a", "x"}}, {Class: "two", Namespaces: []string{"b", "x", "y"}}, {Class: "one", Namespaces: []string{"b"}}}
	for _, first := range sets {
		for _, second := range sets {
			for since := range 3 {
				for _, holds := range []bool{false, true} {
					a := entry{Namespace: "a", Release: "aether", Name: first.name(), Watches: first, Holds: holds, Since: time.Unix(1, 0)}
					b := entry{Namespace: "b", Release: "aether", Name: second.name(), Watches: second, Holds: holds, Since: time.Unix(int64(since), 0)}
					all := []entry{a, b}
					waits := 0
					for _, e := range all {
						waits += min(len(rivals(all, e.Namespace, e.Watches)), 1)
					}
					if want := min(len(common(first, second)), 1); waits != want {
						t.Errorf("%v and %v, since 1 and %d: %d wait, want %d", first, second, since, waits, want)
					}
				}
			}
		}
	}
}

func TestWhatIsWatchedIsReadAsItWasWritten(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want Watches
		fail bool
	}{
		"all":                 {text: `{"gatewayClass":"coxswain"}`, want: Watches{Class: "coxswain"}},
		"some":                {text: `{"gatewayClass":"c","namespaces":["a","b"]}`, want: Watches{Class: "c", Namespaces: []string{"a", "b"}}},
		"in another order":    {text: `{"gatewayClass":"c","namespaces":["b","a","b"]}`, want: Watches{Class: "c", Namespaces: []string{"a", "b"}}},
		"of a newer release":  {text: `{"gatewayClass":"c","selector":{}}`, want: Watches{Class: "c"}},
		"nothing":             {text: ``, fail: true},
		"something else":      {text: `coxswain`, fail: true},
		"a class of one type": {text: `{"gatewayClass":1}`, fail: true},
	} {
		got, err := parse(c.text)
		if (err != nil) != c.fail {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
		if again, err := parse(c.want.encode()); err != nil || !cmp.Equal(again, c.want) {
			t.Errorf("%s: %v became %v, %v", name, c.want, again, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`{"gatewayClass":"c","namespaces":["b","a"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		w, err := parse(text)
		if err != nil {
			return
		}
		if again, err := parse(w.encode()); err != nil || again.encode() != w.encode() {
			t.Errorf("%q: %s became %s, %v", text, w.encode(), again.encode(), err)
		}
	})
}
