package configv1

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// FieldError is a field of a spec whose value cannot be read.
type FieldError struct {
	Path   string // dotted, from the spec: proxy.traceSampleRate; empty for the spec itself
	Detail string // what is wrong, lower case
}

func (e *FieldError) Error() string {
	if e.Path == "" {
		return "spec: " + e.Detail
	}
	return "spec." + e.Path + ": " + e.Detail
}

// DecodeSpec reads a spec from JSON, with presence. Unknown fields, and unknown names of
// enum values, are left out and listed as sorted dotted paths: what a newer version wrote
// must stay readable. A known field of the wrong type is an error (one *FieldError for
// each such field, joined). The empty object is a spec that sets nothing.
func DecodeSpec(data []byte) (spec *MeshConfigSpec, unknown []string, err error) {
	spec = &MeshConfigSpec{}
	d := decoder{}
	d.message("", data, spec.ProtoReflect())
	if len(d.errs) > 0 {
		return nil, nil, errors.Join(d.errs...)
	}
	// The pieces were read one by one; the whole must be readable too, which also
	// refuses one field written twice.
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, spec); err != nil {
		return nil, nil, &FieldError{Detail: reason(err)}
	}
	slices.Sort(d.unknown)
	return spec, d.unknown, nil
}

// decoder walks JSON beside a message's descriptor, so that what is unknown and what
// is wrong can be named by its path. protojson alone knows neither.
type decoder struct {
	unknown []string
	errs    []error
}

func (d *decoder) message(path string, data []byte, msg protoreflect.Message) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil || fields == nil {
		d.errs = append(d.errs, &FieldError{Path: path, Detail: "want an object, got " + describe(data)})
		return
	}
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		at := join(path, name)
		field := fieldByName(msg.Descriptor(), name)
		switch raw := fields[name]; {
		case field == nil:
			d.unknown = append(d.unknown, at)
		case string(raw) == "null": // protobuf's JSON: the same as unset
		case field.Message() != nil && !field.IsList() && !field.IsMap():
			d.message(at, raw, msg.NewField(field).Message())
		default:
			d.leaf(at, raw, field, msg)
		}
	}
}

func (d *decoder) leaf(path string, raw json.RawMessage, field protoreflect.FieldDescriptor, msg protoreflect.Message) {
	one, err := json.Marshal(map[string]json.RawMessage{field.JSONName(): raw})
	if err != nil {
		d.errs = append(d.errs, &FieldError{Path: path, Detail: err.Error()})
		return
	}
	if isNumber(field) && raw[0] == '"' { // protobuf's JSON would take it, an API server does not
		d.errs = append(d.errs, &FieldError{Path: path, Detail: fmt.Sprintf("want %s, got %s", kindName(field), describe(raw))})
		return
	}
	into := msg.New()
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(one, into.Interface()); err != nil {
		d.errs = append(d.errs, &FieldError{Path: path, Detail: fmt.Sprintf("want %s, got %s", kindName(field), describe(raw))})
		return
	}
	if field.Enum() != nil && !field.IsList() && !into.Has(field) {
		d.unknown = append(d.unknown, path)
	}
}

// fieldByName finds a field by either name that protobuf's JSON allows.
func fieldByName(md protoreflect.MessageDescriptor, name string) protoreflect.FieldDescriptor {
	if f := md.Fields().ByJSONName(name); f != nil {
		return f
	}
	return md.Fields().ByTextName(name)
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// isNumber reports whether JSON has the field as a number, by the definition that is made of the proto.
func isNumber(field protoreflect.FieldDescriptor) bool {
	switch field.Kind() { //nolint:exhaustive // integers of 64 bits are strings in protobuf's JSON
	case protoreflect.DoubleKind, protoreflect.FloatKind, protoreflect.Uint32Kind, protoreflect.Int32Kind:
		return !field.IsList() && !field.IsMap()
	}
	return false
}

// kindName is the kind of a field in the words of its JSON.
func kindName(field protoreflect.FieldDescriptor) string {
	switch {
	case field.IsList():
		return "a list of " + field.Kind().String()
	case field.IsMap():
		return "a map"
	}
	switch field.Kind() { //nolint:exhaustive // the rest goes by its own name
	case protoreflect.BoolKind:
		return "true or false"
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		return "a number"
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		return "a whole number that is not negative"
	case protoreflect.EnumKind:
		return "the name of a " + string(field.Enum().Name())
	}
	return field.Kind().String()
}

// describe shows a JSON value in an error, cut to a bounded length.
func describe(raw []byte) string {
	const limit = 64
	s := strings.ToValidUTF8(strings.TrimSpace(string(raw)), "?")
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "…"
	}
	return s
}

// reason is a protojson error without its prefix, whose spaces vary on purpose.
func reason(err error) string {
	s := strings.ReplaceAll(err.Error(), "\u00a0", " ")
	return strings.TrimPrefix(s, "proto: ")
}
