package standalone

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"aether.io/aether/internal/inspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func document(t *testing.T, name, status string) inspect.StatusDocument {
	t.Helper()
	kind, rest, _ := strings.Cut(name, "/")
	namespace, object, _ := strings.Cut(rest, "/")
	if !json.Valid([]byte(status)) {
		t.Fatalf("not JSON: %s", status)
	}
	return inspect.StatusDocument{Kind: kind, Namespace: namespace, Name: object, Status: json.RawMessage(status)}
}

func condition(kind, status, reason, message string) string {
	return `{"type":"` + kind + `","status":"` + status + `","reason":"` + reason + `","message":"` + message + `"}`
}

const (
	well     = `{"parents":[{"parentRef":{"name":"web"},"conditions":[{"type":"Accepted","status":"True","reason":"Accepted"}]}]}`
	dangling = `{"parents":[{"parentRef":{"name":"web","sectionName":"http"},"conditions":[{"type":"ResolvedRefs","status":"False","reason":"BackendNotFound","message":"no Service b"}]}]}`
)

func TestTroubleSaysWhatIsWrongOnce(t *testing.T) {
	for name, c := range map[string]struct {
		status string
		want   []string
	}{
		"nothing is wrong": {status: `{"conditions":[` + condition("Accepted", "True", "Accepted", "") + `]}`},
		"what should be False is False": {
			status: `{"listeners":[{"name":"http","conditions":[` + condition("Conflicted", "False", "NoConflicts", "") + `]}]}`,
		},
		"what should be False is True": {
			status: `{"listeners":[{"name":"http","conditions":[` + condition("Conflicted", "True", "HostnameConflict", "like b") + `]}]}`,
			want:   []string{"listener http: Conflicted=True HostnameConflict: like b"},
		},
		"a listener says it better than its Gateway, and why better than that": {
			status: `{"conditions":[` + condition("ResolvedRefs", "False", "ListenersNotResolved", "listeners: https") + `],
				"listeners":[{"name":"https","conditions":[` + condition("Programmed", "False", "Invalid", "the listener is not valid") + `,` +
				condition("ResolvedRefs", "False", "InvalidCertificateRef", "no Secret") + `]}]}`,
			want: []string{"listener https is not served: ResolvedRefs=False InvalidCertificateRef: no Secret"},
		},
		"a reason of two conditions is told once": {
			status: `{"listeners":[{"name":"http","conditions":[` + condition("Accepted", "False", "ProtocolConflict", "like b") + `,` +
				condition("Programmed", "False", "Invalid", "the listener is not valid") + `,` + condition("Conflicted", "True", "ProtocolConflict", "like b") + `]}]}`,
			want: []string{"listener http is not served: Accepted=False ProtocolConflict: like b"},
		},
		"a parent is named with its listener":         {status: dangling, want: []string{"parent web/http: ResolvedRefs=False BackendNotFound: no Service b"}},
		"the file that has unknown fields tells them": {status: `{"conditions":[` + condition("UnknownFields", "True", "UnknownFields", "x") + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Trouble(document(t, "Gateway/default/web", c.status))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

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

func TestEventsReadAsProse(t *testing.T) {
	for name, c := range map[string]struct{ kind, message, detail, want string }{
		"a proxy that waits says for what": {"state", "proxy NotReady AwaitingSnapshot", `{"state":"NotReady","reason":"AwaitingSnapshot"}`, "starting: the first configuration is not live yet"},
		"an outage says what is served":    {"state", "proxy Degraded Disconnected", `{"state":"Degraded","reason":"Disconnected"}`, "degraded: the proxy is not connected to the controller; Envoy serves its last good configuration"},
		"without Envoy nothing is served":  {"state", "proxy Degraded EnvoyDisconnected", `{"state":"Degraded","reason":"EnvoyDisconnected"}`, "degraded: Envoy is not connected to the proxy"},
		"ready has no reason":              {"state", "proxy Ready ", `{"state":"Ready"}`, "proxy is ready"},
		"an unknown reason is shown":       {"state", "proxy NotReady New", `{"state":"NotReady","reason":"New"}`, "starting: New"},
		"a deleted object is called so":    {"change", "-HTTPRoute/a/b: 1 resource changed", `{"objects":["-HTTPRoute/a/b"]}`, "HTTPRoute/a/b (deleted): 1 resource changed"},
		"a problem is marked":              {"problem", "a.yaml: cannot be read", `{}`, "! a.yaml: cannot be read"},
		"all else is as it was told":       {"ca-ready", "CA ready", `null`, "CA ready"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := prose(inspect.Event{Kind: c.kind, Message: c.message, Detail: json.RawMessage(c.detail)}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestLastLineIsOfThisRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	before := "of an earlier run\n"
	if err := os.WriteFile(path, []byte(before+strings.Repeat("x", 9000)+"\nunknown flag: --nope\n\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	size := int64(len(before) + 9000 + len("\nunknown flag: --nope\n\n"))
	for from, want := range map[int64]string{0: "unknown flag: --nope", int64(len(before)): "unknown flag: --nope", size: "", size + 5: ""} {
		if got := lastLine(path, from); got != want {
			t.Errorf("from %d: got %q, want %q", from, got, want)
		}
	}
	if got := lastLine(filepath.Join(t.TempDir(), "none"), 0); got != "" {
		t.Errorf("no file has the line %q", got)
	}
}
