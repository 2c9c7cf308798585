package manifest

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/spelling"
)

// Decoder turns documents into objects. It is safe for concurrent use.
type Decoder struct {
	crds *crd.Validator
}

// NewDecoder returns a Decoder that admits custom resources by crds.
func NewDecoder(crds *crd.Validator) *Decoder { return &Decoder{crds: crds} }

// Admitted is what became of a document.
type Admitted struct {
	Object   object.Object // nil if the document is refused
	Content  [32]byte      // hash of all but metadata: equal content is the same generation
	Whole    [32]byte      // hash of everything
	Findings []Finding
}

// Decode applies defaults to a document and validates it, as the update of old if old is
// not nil. The document must have a key; it can be decoded once.
func (d *Decoder) Decode(ctx context.Context, doc *Document, old *Document) Admitted {
	group := groupOf(doc.content["apiVersion"].(string))
	k, ok := lookup(group, string(doc.Key.Kind))
	if !ok {
		return Admitted{Findings: []Finding{{Severity: Refused, Path: "kind", Message: "is not a kind that is read"}}}
	}
	r := reading{Admitted: Admitted{Findings: doc.Findings}, kind: k, doc: doc, decoder: d}
	meta := r.metadata()
	delete(doc.content, "metadata")
	delete(doc.content, "status")
	switch {
	case k.name == object.MeshConfig:
		r.meshConfig()
	case k.admit == nil:
		r.custom(ctx, old)
	default:
		r.core()
	}
	if r.refused() {
		r.Object = nil
		return r.Admitted
	}
	r.finish(meta)
	return r.Admitted
}

// reading is one Decode under way.
type reading struct {
	Admitted
	kind    kind
	doc     *Document
	decoder *Decoder
	usual   bool // the metadata are names, labels and annotations
}

func (r *reading) refuse(path, message string) {
	r.Findings = append(r.Findings, Finding{Severity: Refused, Path: path, Message: message})
}

func (r *reading) addErrors(errs field.ErrorList) {
	for _, e := range errs {
		path := e.Field
		if path == "<nil>" {
			path = ""
		}
		r.refuse(path, r.explain(e))
	}
}

// quoteIt is said of a value that YAML takes for something else than text: y, 1.0, null.
const quoteIt = ": put quotes around it"

// explain says what is wrong with a field: without its path, which is told with it, and with
// its value where the definitions' validator has only the value's type.
func (r *reading) explain(e *field.Error) string {
	about := *e
	about.Detail = strings.TrimPrefix(e.Detail, e.Field+" in body ")
	want, _, isType := strings.Cut(about.Detail, ": ")
	if e.Type != field.ErrorTypeTypeInvalid || !isType || !strings.HasPrefix(want, "must be of type ") {
		return about.ErrorBody()
	}
	value, known := valueAt(r.doc.content, steps(e.Field))
	shown := show(value)
	if !known || shown == "" {
		return fmt.Sprintf("%s, not %v", want, e.BadValue)
	}
	text := want + ", not " + shown
	switch value.(type) {
	case string, map[string]any, []any, nil:
	default:
		if want == "must be of type string" {
			text += quoteIt
		}
	}
	return text
}

// unknown is a finding of a field that is not known.
func (r *reading) unknown(s Severity, path string) {
	message := "is not known"
	if s == Warning {
		message += " and has no effect"
	}
	if field := meant(reflect.TypeOf(r.kind.make()), path); field != "" {
		message += "; did you mean " + field
		if value, is := valueAt(r.doc.content, steps(field)); is && !r.refused() && show(value) != "" {
			message += ", which is " + show(value) + " now"
		}
		message += "?"
	}
	r.Findings = append(r.Findings, Finding{Severity: s, Path: path, Message: message, Unknown: true})
}

func (r *reading) refused() bool {
	for _, f := range r.Findings {
		if f.Severity == Refused {
			return true
		}
	}
	return false
}

// metadata reads and validates what an author may set; what a server sets is dropped.
func (r *reading) metadata() *metav1.ObjectMeta {
	fields, _ := r.doc.content["metadata"].(map[string]any)
	for _, server := range []string{
		"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "managedFields", "selfLink", "generateName",
	} {
		delete(fields, server)
	}
	meta := &metav1.ObjectMeta{}
	if r.usual = usual(fields, meta); !r.usual {
		*meta = metav1.ObjectMeta{}
		r.into(fields, meta, Warning, "metadata")
	}
	meta.Name, meta.Namespace = r.doc.Key.Name, r.doc.Key.Namespace
	name := apivalidation.NameIsDNSSubdomain
	switch r.kind.name { //nolint:exhaustive // the rest are subdomains
	case object.Namespace:
		name = apivalidation.NameIsDNSLabel
	case object.Service:
		name = apivalidation.NameIsDNS1035Label
	}
	r.addErrors(apivalidation.ValidateObjectMeta(meta, r.kind.name.Namespaced(), name, field.NewPath("metadata")))
	return meta
}

// usual sets what fields say, without a decoder for all that they could say; false if
// they say more than names, labels and annotations.
func usual(fields map[string]any, meta *metav1.ObjectMeta) bool {
	for name, v := range fields {
		switch name {
		case "name", "namespace": // checked when the document was identified
		case "labels", "annotations":
			given, ok := v.(map[string]any)
			texts := make(map[string]string, len(given))
			for key, value := range given {
				text, isText := value.(string)
				texts[key], ok = text, ok && isText
			}
			if !ok {
				return false
			}
			if name == "labels" {
				meta.Labels = texts
			} else {
				meta.Annotations = texts
			}
		default:
			return false
		}
	}
	return true
}

// custom admits a custom resource by its definition.
func (r *reading) custom(ctx context.Context, old *Document) {
	u := &unstructured.Unstructured{Object: r.doc.content}
	var before *unstructured.Unstructured
	if old != nil && r.decoder.crds.UsesOld(u) {
		before = r.decoder.before(ctx, old, u)
	}
	// Rules of a definition may read these two of the metadata, no others.
	u.SetName(r.doc.Key.Name)
	if r.doc.Key.Namespace != "" {
		u.SetNamespace(r.doc.Key.Namespace)
	}
	unknown, errs := r.decoder.crds.Admit(ctx, u, before)
	delete(u.Object, "metadata")
	severity := Warning
	if r.kind.name == object.GatewayParameters { // a typo there would change how a proxy is run
		severity = Refused
	}
	r.addErrors(errs)
	for _, path := range unknown {
		r.unknown(severity, path)
	}
	if r.refused() {
		return
	}
	r.Object = r.kind.make()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, r.Object); err != nil {
		r.refuse("", err.Error())
	}
}

// before is old as it was admitted; nil if it is of another version or was not.
func (d *Decoder) before(ctx context.Context, old *Document, now *unstructured.Unstructured) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	if _, err := kjson.UnmarshalStrict(old.Raw, &u.Object); err != nil || u.GetAPIVersion() != now.GetAPIVersion() {
		return nil
	}
	delete(u.Object, "metadata")
	if _, errs := d.crds.Admit(ctx, u, nil); len(errs) > 0 {
		return nil
	}
	return u
}

// meshConfig leaves a MeshConfig to its one validator.
func (r *reading) meshConfig() {
	c, err := meshconfig.Load(r.doc.Raw)
	if invalid, ok := errors.AsType[*meshconfig.Invalid](err); ok {
		for _, f := range invalid.Fields {
			r.refuse(strings.TrimSuffix("spec."+f.Path, "."), f.Detail)
		}
		return
	}
	if err != nil {
		r.refuse("", err.Error())
		return
	}
	for _, name := range slices.Sorted(maps.Keys(r.doc.content)) {
		if slices.Contains(meshConfigFields, name) {
			continue
		}
		meant, ok := spelling.Nearest(name, meshConfigFields)
		if known, is := meshconfig.Suggest(name); !ok && is { // what belongs into the spec
			meant, ok = "spec."+known, true
		}
		r.unknownTo(name, meant, ok)
	}
	for _, path := range c.UnknownFields {
		known, ok := meshconfig.Suggest(path)
		r.unknownTo("spec."+path, "spec."+known, ok)
	}
	r.Object = c
}

// meshConfigFields is what a MeshConfig has beside its spec.
var meshConfigFields = []string{"apiVersion", "kind", "metadata", "spec", "status"}

// unknownTo notes a field that this version does not know, and which one may be meant.
func (r *reading) unknownTo(path, meant string, ok bool) {
	message := "is not known and has no effect"
	if ok {
		message += "; did you mean " + meant + "?"
	}
	r.Findings = append(r.Findings, Finding{Severity: Warning, Path: path, Message: message, Unknown: true})
}

// core decodes a core type strictly, as kubectl does by default.
func (r *reading) core() {
	if v, _ := r.doc.content["apiVersion"].(string); !strings.HasSuffix("/"+v, "/v1") {
		r.refuse("apiVersion", fmt.Sprintf("%q is not served; use v1", v))
		return
	}
	if r.kind.name == object.Secret {
		r.base64()
	}
	if r.refused() {
		return
	}
	r.Object = r.kind.make()
	r.into(r.doc.content, r.Object, Refused, "")
	if !r.refused() {
		r.Object.SetName(r.doc.Key.Name)
		r.Findings = append(r.Findings, r.kind.admit(r.Object)...)
	}
}

// into decodes fields; unknown ones are findings of the given severity.
func (r *reading) into(fields map[string]any, out any, unknown Severity, at string) {
	data, err := json.Marshal(fields)
	if err != nil {
		r.refuse(at, err.Error())
		return
	}
	strict, err := kjson.UnmarshalStrict(data, out)
	for _, e := range strict {
		path := at
		if f, ok := errors.AsType[kjson.FieldError](e); ok {
			path = strings.TrimPrefix(at+"."+f.FieldPath(), ".")
		}
		r.unknown(unknown, path)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		message := fmt.Sprintf("want %s, got %s", wrong.Type, wrong.Value)
		if wrong.Type.Kind() == reflect.String && (wrong.Value == "bool" || strings.HasPrefix(wrong.Value, "number")) {
			message += quoteIt
		}
		r.refuse(strings.TrimPrefix(at+"."+wrong.Field, "."), message)
		return
	}
	if err != nil {
		r.refuse(at, err.Error())
	}
}

// finish puts the parts together and hashes them.
func (r *reading) finish(meta *metav1.ObjectMeta) {
	if r.kind.name == object.Namespace {
		metav1.SetMetaDataLabel(meta, corev1.LabelMetadataName, meta.Name)
	}
	// The served version may be older than the type that comes out; they differ in name only.
	r.Object.GetObjectKind().SetGroupVersionKind(r.kind.gvk())
	delete(r.doc.content, "apiVersion")
	content, err := json.Marshal(r.doc.content)
	if err != nil {
		r.refuse("", err.Error())
		r.Object = nil
		return
	}
	var whole any = meta
	if r.usual {
		whole = []any{meta.Name, meta.Namespace, meta.Labels, meta.Annotations}
	}
	about, err := json.Marshal(whole)
	if err != nil {
		r.refuse("metadata", err.Error())
		r.Object = nil
		return
	}
	r.Content = sha256.Sum256(content)
	r.Whole = sha256.Sum256(append(content, about...))
	setMeta(r.Object, meta)
}

func setMeta(o object.Object, meta *metav1.ObjectMeta) {
	if accessor, ok := o.(metav1.ObjectMetaAccessor); ok {
		if own, ok := accessor.GetObjectMeta().(*metav1.ObjectMeta); ok {
			*own = *meta
		}
	}
}
