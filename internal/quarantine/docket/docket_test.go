package docket_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/resource"
)

func key(name string) object.Key {
	return object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: name}
}

func route(name, host string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Generation: 3, CreationTimestamp: metav1.NewTime(time.Unix(1700000000, 0))},
		Spec:       gatewayv1.HTTPRouteSpec{Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(host)}},
	}
}

func convictions() map[object.Key]quarantine.Conviction {
	n := resource.Name{TypeURL: "type.googleapis.com/t", Name: "ns/web/80|*"}
	return map[object.Key]quarantine.Conviction{
		key("held"): {Content: quarantine.ContentOf(route("held", "b.example")), Instead: route("held", "a.example"), Resource: n, Detail: "no\nsuch <regex>"},
		key("out"):  {Content: quarantine.ContentOf(route("out", "c.example")), Resource: n, Detail: "no"},
	}
}

func TestWhatIsSavedIsLoaded(t *testing.T) {
	f := docket.File{Path: filepath.Join(t.TempDir(), "convictions.json")}
	if got, err := f.Load(t.Context()); err != nil || len(got) > 0 {
		t.Fatalf("before anything was saved: %v, %v", got, err)
	}
	for _, want := range []map[object.Key]quarantine.Conviction{convictions(), {}} {
		if err := f.Save(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		got, err := f.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	info, err := os.Stat(f.Path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want that nobody else can read it", info.Mode(), err)
	}
}

func TestOneEntryThatCannotBeReadCostsNoOther(t *testing.T) {
	f := docket.File{Path: filepath.Join(t.TempDir(), "convictions.json")}
	if err := f.Save(t.Context(), convictions()); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		old, with string
		left      int
	}{
		"a key that is none":           {"HTTPRoute/default/out", "out", 1},
		"a hash that is cut short":     {`"content": "`, `"content": "0`, 0},
		"a version of another object":  {`"name": "held"`, `"name": "other"`, 1},
		"a kind that is not convicted": {"HTTPRoute/default/held", "Secret/default/held", 1},
		"a file that is cut short":     {"]\n", "", 0},
		"a file of something else":     {"[", "{[", 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			text := strings.ReplaceAll(string(good), c.old, c.with)
			if text == string(good) {
				t.Fatal("the case changes nothing")
			}
			if err := os.WriteFile(f.Path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := f.Load(t.Context())
			if err == nil || !strings.Contains(err.Error(), f.Path) {
				t.Errorf("error %v, want one that names the file", err)
			}
			if len(got) != c.left {
				t.Errorf("loaded %v, want %d", got, c.left)
			}
		})
	}
}
