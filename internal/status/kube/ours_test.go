package kube

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/object"
)

const (
	manager = "aether-controller/aether-system"
	former  = "aether-controller" // of earlier versions
)

// conditionsBy is who wrote a list of conditions, as an API server keeps it.
func conditionsBy(types ...string) string {
	var out []string
	for _, t := range types {
		out = append(out, `"k:{\"type\":\"`+t+`\"}":{".":{},"f:status":{},"f:type":{}}`)
	}
	return `"f:conditions":{` + strings.Join(out, ",") + `}`
}

func writtenBy(manager, subresource, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{` + fields + `}}`),
	}
}

// Of a Gateway that is ours no more goes what nobody wrote but us.
func TestOfAGatewayGoesWhatOnlyWeWrote(t *testing.T) {
	const status = `
addresses: [{type: IPAddress, value: 192.0.2.1}]
attachedListenerSets: 1
conditions:
- {type: Accepted, status: "True", reason: Accepted, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- {type: Programmed, status: "True", reason: Programmed, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
listeners:
- name: http
  attachedRoutes: 1
  conditions:
  - {type: Accepted, status: "True", reason: Accepted, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Programmed, status: "True", reason: Programmed, message: "", lastTransitionTime: "2026-01-01T00:00:00Z"}
- name: https
  attachedRoutes: 0
  conditions: []
`
	all := `"f:addresses":{},"f:attachedListenerSets":{},` + conditionsBy("Accepted", "Programmed") +
		`,"f:listeners":{"k:{\"name\":\"http\"}":{".":{},"f:name":{},"f:attachedRoutes":{},` + conditionsBy("Accepted", "Programmed") + `},"k:{\"name\":\"https\"}":{".":{},"f:name":{}}}`
	for name, test := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   string // what is left, as a path each
	}{
		"all of it, where nobody else wrote":            {[]metav1.ManagedFieldsEntry{writtenBy(manager, "status", all)}, ""},
		"all of what an earlier version wrote":          {[]metav1.ManagedFieldsEntry{writtenBy(former, "status", all)}, ""},
		"all of what it wrote and we have since":        {[]metav1.ManagedFieldsEntry{writtenBy(former, "status", all), writtenBy(manager, "status", conditionsBy("Accepted"))}, ""},
		"nothing of what it wrote into the spec":        {[]metav1.ManagedFieldsEntry{writtenBy(former, "", all)}, "addresses sets Accepted Programmed http/Accepted http/Programmed https"},
		"nothing of what another release wrote":         {[]metav1.ManagedFieldsEntry{writtenBy("aether-controller/other", "status", all)}, "addresses sets Accepted Programmed http/Accepted http/Programmed https"},
		"nothing of what we wrote into the spec":        {[]metav1.ManagedFieldsEntry{writtenBy(manager, "", all)}, "addresses sets Accepted Programmed http/Accepted http/Programmed https"},
		"nothing where it is not on record who wrote":   {nil, "addresses sets Accepted Programmed http/Accepted http/Programmed https"},
		"nothing of what another has taken over wholly": {[]metav1.ManagedFieldsEntry{writtenBy(manager, "status", all), writtenBy("other", "status", all)}, "addresses sets Accepted Programmed http/Accepted http/Programmed https"},
		"not what another has changed a part of": {
			[]metav1.ManagedFieldsEntry{
				writtenBy(manager, "status", all),
				writtenBy("other", "status", conditionsBy("Accepted")+`,"f:listeners":{"k:{\"name\":\"http\"}":{`+conditionsBy("Programmed")+`}}`),
			},
			"Accepted http/Programmed",
		},
		"not the addresses that another wrote": {
			[]metav1.ManagedFieldsEntry{writtenBy(manager, "status", all), writtenBy("other", "status", `"f:addresses":{}`)}, "addresses",
		},
		"nothing by a record that cannot be read": {
			[]metav1.ManagedFieldsEntry{{Manager: manager, Subresource: "status", FieldsV1: metav1.NewFieldsV1("{")}, {Manager: manager, Subresource: "status"}},
			"addresses sets Accepted Programmed http/Accepted http/Programmed https",
		},
	} {
		t.Run(name, func(t *testing.T) {
			gw := &gatewayv1.Gateway{}
			if err := yaml.UnmarshalStrict([]byte(status), &gw.Status); err != nil {
				t.Fatal(err)
			}
			gw.ManagedFields = test.fields
			s := &Sink{managers: []string{manager, former}}
			before := gw.DeepCopy()
			had := s.HasOurs(gw)
			if !object.Alike(before, gw) {
				t.Errorf("a look has changed it: %s", cmp.Diff(before, gw))
			}
			s.clear(gw)
			if changed := !object.Alike(before, gw); changed != had {
				t.Errorf("has ours: %t, and something went: %t", had, changed)
			}
			if got := left(gw.Status); got != test.want {
				t.Errorf("left is %q, want %q", got, test.want)
			}
			if s.HasOurs(gw) {
				t.Error("there is still something of ours")
			}
			for _, l := range gw.Status.Listeners {
				if l.Conditions == nil {
					t.Errorf("listener %s has no list of conditions: no API server takes that", l.Name)
				}
			}
		})
	}
}

func left(s gatewayv1.GatewayStatus) string {
	var out []string
	if s.Addresses != nil {
		out = append(out, "addresses")
	}
	if s.AttachedListenerSets != nil {
		out = append(out, "sets")
	}
	for _, c := range s.Conditions {
		out = append(out, c.Type)
	}
	for _, l := range s.Listeners {
		for _, c := range l.Conditions {
			out = append(out, string(l.Name)+"/"+c.Type)
		}
		if len(l.Conditions) == 0 {
			out = append(out, string(l.Name))
		}
	}
	return strings.Join(out, " ")
}

// The API server's own conditions of an object that nobody describes stand in our name, as it was
// our write that it put them in by. They are no reason for another.
func TestWhatTheAPIServerSaysOfAWaitingGatewayIsNobodys(t *testing.T) {
	gw := &gatewayv1.Gateway{}
	gw.ManagedFields = []metav1.ManagedFieldsEntry{writtenBy(manager, "status", conditionsBy("Accepted"))}
	gw.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionUnknown, Reason: "Pending", Message: "Waiting for controller", LastTransitionTime: metav1.Unix(0, 0)}}
	if (&Sink{managers: []string{manager, former}}).HasOurs(gw) {
		t.Error("that is ours")
	}
}

// A ListenerSet whose Gateway is ours no more is as its Gateway.
func TestOfAListenerSetGoesWhatOnlyWeWrote(t *testing.T) {
	set := &gatewayv1.ListenerSet{}
	set.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue}, {Type: "Theirs", Status: metav1.ConditionTrue}}
	set.Status.Listeners = []gatewayv1.ListenerEntryStatus{{Name: "http", Conditions: []metav1.Condition{{Type: "Accepted"}}}}
	set.ManagedFields = []metav1.ManagedFieldsEntry{
		writtenBy(manager, "status", conditionsBy("Accepted")+`,"f:listeners":{"k:{\"name\":\"http\"}":{".":{}}}`), writtenBy("other", "status", conditionsBy("Theirs")),
	}
	s := &Sink{managers: []string{manager, former}}
	if !s.HasOurs(set) {
		t.Fatal("nothing is ours")
	}
	s.clear(set)
	if len(set.Status.Conditions) != 1 || set.Status.Conditions[0].Type != "Theirs" || len(set.Status.Listeners) != 0 || s.HasOurs(set) {
		t.Errorf("left is %+v", set.Status)
	}
}
