package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kjson "sigs.k8s.io/json"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
)

// What an API server passes on of warnings: 256 bytes of each, 4 KiB of all. Of more than
// these the rest is counted.
const (
	maxWarnings = 15
	maxWarning  = 250
)

// results of a review, as the metric has them.
const (
	resultAllowed   = "allowed"
	resultWarned    = "warned" // and allowed
	resultDenied    = "denied"
	resultMalformed = "malformed" // no review of a MeshConfig: it got no verdict
	resultBusy      = "busy"      // likewise: too many large ones at once
)

// results lists all of them.
func results() []string {
	return []string{resultAllowed, resultWarned, resultDenied, resultMalformed, resultBusy}
}

// judge is what a MeshConfig is judged by.
type judge struct {
	system    meshconfig.System
	namespace string                      // the release's
	release   func() *configv1.MeshConfig // its MeshConfig as it is in effect, nil if there is none
}

// asked is what is read of an AdmissionReview: strangers send the rest for nothing.
type asked struct {
	metav1.TypeMeta `json:",inline"`
	Request         *request `json:"request"`
}

type request struct {
	UID         types.UID               `json:"uid"`
	Kind        metav1.GroupVersionKind `json:"kind"`
	SubResource string                  `json:"subResource"`
	Name        string                  `json:"name"`
	Namespace   string                  `json:"namespace"`
	Operation   admissionv1.Operation   `json:"operation"`
	Object      json.RawMessage         `json:"object"`
	OldObject   json.RawMessage         `json:"oldObject"`
}

// review answers a review as bytes, and says what became of it. An error means that the bytes
// are no review that can be answered; it is for whoever sent them.
func (j judge) review(body []byte) (answer []byte, result string, err error) {
	var in asked
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, resultMalformed, fmt.Errorf("read AdmissionReview: %w", err)
	}
	want := admissionv1.SchemeGroupVersion.WithKind("AdmissionReview")
	if in.APIVersion != want.GroupVersion().String() || in.Kind != want.Kind {
		return nil, resultMalformed, fmt.Errorf("want %s %s, got %.64q %.64q", want.GroupVersion(), want.Kind, in.APIVersion, in.Kind)
	}
	if in.Request == nil || in.Request.UID == "" {
		return nil, resultMalformed, errors.New("the AdmissionReview has no request, or one without uid")
	}
	response, err := j.respond(in.Request)
	if err != nil {
		return nil, resultMalformed, err
	}
	response.UID = in.Request.UID
	answer, err = json.Marshal(admissionv1.AdmissionReview{TypeMeta: in.TypeMeta, Response: response})
	if err != nil {
		return nil, resultMalformed, fmt.Errorf("write AdmissionReview: %w", err)
	}
	switch {
	case !response.Allowed:
		result = resultDenied
	case len(response.Warnings) > 0:
		result = resultWarned
	default:
		result = resultAllowed
	}
	return answer, result, nil
}

// respond judges one request. What is neither made nor changed, as in a deletion, is none of
// ours to judge.
func (j judge) respond(r *request) (*admissionv1.AdmissionResponse, error) {
	gk := configv1.GroupVersion().WithKind(configv1.KindMeshConfig)
	if r.Kind.Group != gk.Group || r.Kind.Version != gk.Version || r.Kind.Kind != gk.Kind {
		return nil, fmt.Errorf("want a request for %s, got %.64q %.64q %.64q", gk, r.Kind.Group, r.Kind.Version, r.Kind.Kind)
	}
	if r.SubResource != "" || r.Operation != admissionv1.Create && r.Operation != admissionv1.Update {
		return &admissionv1.AdmissionResponse{Allowed: true}, nil
	}
	if len(r.Object) == 0 || string(r.Object) == "null" {
		return nil, fmt.Errorf("%.64q without an object", r.Operation)
	}
	if spec := specOf(r.Object); len(spec) > maxSpec {
		wrong := []string{fmt.Sprintf("spec: has %d bytes, want %d at most", len(spec), maxSpec)}
		if r.Operation == admissionv1.Update && bytes.Equal(spec, specOf(r.OldObject)) {
			return &admissionv1.AdmissionResponse{Allowed: true, Warnings: wrong}, nil
		}
		return &admissionv1.AdmissionResponse{Result: refusal(r.Name, wrong)}, nil
	}
	c, wrong, err := meshconfig.Judge(r.Object)
	switch {
	case err != nil:
		return nil, err
	case len(wrong) == 0:
		c.Namespace = r.Namespace // which an object may leave out
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: bounded(j.warnings(c))}, nil
	case r.Operation == admissionv1.Update && sameSpec(r.Object, r.OldObject):
		// It is bad already, and could otherwise not even lose a label or a finalizer.
		return &admissionv1.AdmissionResponse{Allowed: true, Warnings: bounded(wrong)}, nil
	}
	return &admissionv1.AdmissionResponse{Result: refusal(r.Name, wrong)}, nil
}

// warnings is what its author should know of a valid MeshConfig.
func (j judge) warnings(c *configv1.MeshConfig) []string {
	var out []string
	for _, path := range c.UnknownFields {
		text := "spec." + path + " is not known here and has no effect"
		if known, ok := meshconfig.Suggest(path); ok {
			text += "; is it spec." + known + "?"
		}
		out = append(out, text)
	}
	release, own := c, (*configv1.MeshConfig)(nil)
	if c.Namespace != j.namespace {
		release, own = j.release(), c
	}
	for _, idle := range meshconfig.NoEffect(j.system, c.Spec, meshconfig.Resolve(j.system, release, own)) {
		out = append(out, idle.String())
	}
	return out
}

// bounded makes warnings what an API server passes on: printable, and not too many.
func bounded(list []string) []string {
	var out []string
	for _, w := range list[:min(len(list), maxWarnings)] {
		w = strings.ToValidUTF8(w, "�")
		if strings.ContainsFunc(w, func(r rune) bool { return !strconv.IsPrint(r) }) {
			w = strconv.Quote(w)
		}
		if len(w) > maxWarning {
			w = strings.ToValidUTF8(w[:maxWarning], "") + "…"
		}
		out = append(out, w)
	}
	if more := len(list) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more warnings", more))
	}
	return out
}

// refusal says what is wrong, whole in its message and field by field in its causes.
func refusal(name string, wrong []string) *metav1.Status {
	s := &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: strings.Join(wrong, "; "),
		Details: &metav1.StatusDetails{Group: configv1.GroupVersion().Group, Kind: configv1.KindMeshConfig, Name: name},
	}
	for _, w := range wrong {
		field, message, _ := strings.Cut(w, ": ")
		s.Details.Causes = append(s.Details.Causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message})
	}
	return s
}

// specOf is an object's spec as it is written, nil if there is none. An API server writes the same
// spec always the same.
func specOf(object []byte) json.RawMessage {
	var in struct {
		Spec json.RawMessage `json:"spec"`
	}
	if len(object) == 0 || kjson.UnmarshalCaseSensitivePreserveInts(object, &in) != nil { // as it is judged
		return nil
	}
	return in.Spec
}

// sameSpec reports whether two objects say the same in their specs, the first of which is no
// longer than a spec may be.
func sameSpec(a, b []byte) bool {
	one, two := specOf(a), specOf(b)
	if bytes.Equal(one, two) {
		return len(b) > 0
	}
	var x, y any
	return len(two) <= maxSpec && json.Unmarshal(one, &x) == nil && json.Unmarshal(two, &y) == nil && reflect.DeepEqual(x, y)
}
