package kube_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/status/kube"
)

const manager = "aether-controller/aether-system"

// What is wrong with an object is told in its status above all when it is what it is written as that
// cannot be read.
func TestAMeshConfigThatCannotBeReadHasAStatus(t *testing.T) {
	var put configv1.MeshConfigStatus
	puts := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			var in struct {
				Status *configv1.MeshConfigStatus `json:"status"`
			}
			in.Status = &put
			if err := json.Unmarshal(body, &in); err != nil {
				t.Errorf("PUT %s: %v", r.URL.Path, err)
			}
			puts++
		}
		_, _ = io.WriteString(w, `{"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":"default","namespace":"team","uid":"u","resourceVersion":"7","generation":2},
			"spec":{"proxy":{"accessLogSuccessSampleRate":"ten"}}}`)
	}))
	defer api.Close()
	sink, err := kube.New(kube.Config{Client: &rest.Config{Host: api.URL}, ControllerName: "config.aether.io/gateway-controller", FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	want := metav1.Condition{Type: configv1.MeshConfigProjected, Status: metav1.ConditionFalse, Reason: configv1.MeshConfigReasonInvalidConfig, Message: "why", ObservedGeneration: 2}
	wrote, err := sink.Write(t.Context(), status.Document{
		Key: object.Key{Kind: object.MeshConfig, Namespace: "team", Name: "default"}, UID: "u", Generation: 2,
		Status: &configv1.MeshConfigStatus{ObservedGeneration: 2, Conditions: []metav1.Condition{want}},
	})
	if err != nil || !wrote || puts != 1 {
		t.Fatalf("wrote %t in %d requests: %v", wrote, puts, err)
	}
	if len(put.Conditions) != 1 || put.Conditions[0].Reason != want.Reason {
		t.Errorf("it has %+v", put)
	}
}

// What another has changed since is put back later than that, whatever the time that is known here.
func TestAConditionIsNotPutBackBeforeItWasChanged(t *testing.T) {
	at := func(hour int) metav1.Time { return metav1.Date(2026, 1, 2, hour, 0, 0, 0, time.UTC) }
	applied := func(s metav1.ConditionStatus, hour int) []metav1.Condition {
		return []metav1.Condition{{Type: "Applied", Status: s, LastTransitionTime: at(hour)}}
	}
	for name, tt := range map[string]struct{ now, wanted, want []metav1.Condition }{
		"another has changed it":      {applied("False", 3), applied("True", 2), applied("True", 3)},
		"nobody has, since":           {applied("False", 3), applied("True", 4), applied("True", 4)},
		"it is as it was":             {applied("True", 1), applied("True", 2), applied("True", 1)},
		"it is as it was, seen later": {applied("True", 3), applied("True", 2), applied("True", 3)},
	} {
		t.Run(name, func(t *testing.T) {
			sink, err := kube.New(kube.Config{Client: &rest.Config{Host: "http://localhost"}, ControllerName: "config.aether.io/gateway-controller", FieldManager: manager})
			if err != nil {
				t.Fatal(err)
			}
			o := &configv1.MeshConfig{}
			o.Status.Conditions = tt.now
			d := status.Document{Key: object.Key{Kind: object.MeshConfig, Namespace: "team", Name: "default"}, Status: &configv1.MeshConfigStatus{Conditions: tt.wanted}}
			if got, want := sink.Shows(o, d), tt.now[0].Status == tt.wanted[0].Status; got != want {
				t.Errorf("it is shown: %t", got)
			}
			o.Status.Conditions = tt.want
			if !sink.Shows(o, d) {
				t.Errorf("%+v does not become %+v", tt.now, tt.want)
			}
		})
	}
}

// Of what is to be absent it does not matter who wrote it, and others' conditions stay.
func TestAConditionThatIsToBeAbsentIsTakenOut(t *testing.T) {
	var put configv1.MeshConfigStatus
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			var in struct {
				Status *configv1.MeshConfigStatus `json:"status"`
			}
			in.Status = &put
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
				t.Errorf("PUT %s: %v", r.URL.Path, err)
			}
		}
		_, _ = io.WriteString(w, `{"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":"default","namespace":"team","uid":"u","resourceVersion":"7","generation":2},
			"status":{"conditions":[{"type":"TelemetryDelivered","status":"False"},{"type":"Foreign","status":"True"}]}}`)
	}))
	defer api.Close()
	sink, err := kube.New(kube.Config{Client: &rest.Config{Host: api.URL}, ControllerName: "config.aether.io/gateway-controller", FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	d := status.Document{
		Key: object.Key{Kind: object.MeshConfig, Namespace: "team", Name: "default"}, UID: "u", Generation: 2,
		Status: &configv1.MeshConfigStatus{}, Absent: []string{configv1.MeshConfigTelemetryDelivered},
	}
	now := &configv1.MeshConfig{}
	now.Status.Conditions = []metav1.Condition{{Type: configv1.MeshConfigTelemetryDelivered}}
	if sink.Shows(now, d) {
		t.Error("an object that has it is said to be as it should")
	}
	if wrote, err := sink.Write(t.Context(), d); err != nil || !wrote {
		t.Fatalf("wrote %t: %v", wrote, err)
	}
	if len(put.Conditions) != 1 || put.Conditions[0].Type != "Foreign" {
		t.Errorf("it has %+v", put.Conditions)
	}
}
