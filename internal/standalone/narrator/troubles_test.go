package narrator

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/inspect"
)

func document(t *testing.T, name, status string) inspect.StatusDocument {
	t.Helper()
	kind, rest, _ := strings.Cut(name, "/")
	namespace, object, _ := strings.Cut(rest, "/")
	if !json.Valid([]byte(status)) {
		t.Fatalf("not JSON: %s", status)
	}
	return inspect.StatusDocument{Kind: kind, Namespace: namespace, Name: object, Status: json.RawMessage(status)}
}

const (
	well     = `{"parents":[{"parentRef":{"name":"web"},"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}]}`
	dangling = `{"parents":[{"parentRef":{"name":"web","sectionName":"http"},"conditions":[{"type":"ResolvedRefs","status":"False","reason":"BackendNotFound","message":"no Service b"}]}]}`
)

func TestNewsIsToldOnceAndWhenItIsOver(t *testing.T) {
	tr := newTroubles()
	idle, settled := []string{"HTTPRoute/default/lost"}, false
	texts := func(docs ...inspect.StatusDocument) (out []string) {
		for _, v := range tr.news(answer{docs: docs, idle: idle, settled: settled}) {
			out = append(out, v.object+": "+v.text)
		}
		return out
	}
	bad, good := document(t, "HTTPRoute/default/shop", dangling), document(t, "HTTPRoute/default/shop", well)
	lost := "HTTPRoute/default/lost: has no effect: none of its parentRefs names a Gateway that is served"
	if got := texts(); got != nil {
		t.Errorf("objects that have no status yet have news: %q", got)
	}
	settled = true
	for _, step := range []struct {
		what string
		got  []string
		want []string
	}{
		{"what is wrong is told", texts(bad), []string{lost, "HTTPRoute/default/shop: parent web/http: ResolvedRefs=False BackendNotFound: no Service b"}},
		{"it is not told again", texts(bad), nil},
		{"its end is told", texts(good), []string{"HTTPRoute/default/shop: all is well again"}},
		{"its end is not told again", texts(good), nil},
	} {
		if diff := cmp.Diff(step.want, step.got); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
	idle = nil
	if got := texts(good); got != nil {
		t.Errorf("an object that is gone has news: %q", got)
	}
}
