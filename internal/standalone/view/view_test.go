package view

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

func condition(kind, status, reason, message string) string {
	return `{"type":"` + kind + `","status":"` + status + `","reason":"` + reason + `","message":"` + message + `"}`
}

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
		"a parent is named with its listener":         {status: `{"parents":[{"parentRef":{"name":"web","sectionName":"http"},"conditions":[{"type":"ResolvedRefs","status":"False","reason":"BackendNotFound","message":"no Service b"}]}]}`, want: []string{"parent web/http: ResolvedRefs=False BackendNotFound: no Service b"}},
		"of a collector the problems tell once":       {status: `{"conditions":[` + condition("TelemetryDelivered", "False", "CollectorUnreachable", "x") + `]}`},
		"the file that has unknown fields tells them": {status: `{"conditions":[` + condition("UnknownFields", "True", "UnknownFields", "x") + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, Trouble(document(t, "Gateway/default/web", c.status))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
