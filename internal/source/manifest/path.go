package manifest

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"aether.io/aether/internal/spelling"
)

// steps takes the path of a field apart: spec.rules[0].name is spec, rules, 0, name. A key
// that has a dot or a bracket in it comes out as several steps, which lead nowhere.
func steps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// valueAt is what is written at a path.
func valueAt(content any, path []string) (any, bool) {
	for _, step := range path {
		switch in := content.(type) {
		case map[string]any:
			v, ok := in[step]
			if !ok {
				return nil, false
			}
			content = v
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			content = in[i]
		default:
			return nil, false
		}
	}
	return content, true
}

// typeAt is the type of what is at a path in a value of type t; nil if there can be nothing.
func typeAt(t reflect.Type, path []string) reflect.Type {
	for _, step := range path {
		switch t = pointedAt(t); t.Kind() {
		case reflect.Slice, reflect.Map:
			t = t.Elem()
		case reflect.Struct:
			if t = fields(t)[step]; t == nil {
				return nil
			}
		default:
			return nil
		}
	}
	return pointedAt(t)
}

func pointedAt(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}

// fields are the types of a struct's fields by the names that JSON has for them.
func fields(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name != "":
			out[name] = f.Type
		case f.Anonymous && pointedAt(f.Type).Kind() == reflect.Struct:
			maps.Copy(out, fields(pointedAt(f.Type)))
		}
	}
	return out
}

// meant is the field of an object of type t that its author most likely meant by an unknown
// one; empty if none is near.
func meant(t reflect.Type, unknown string) string {
	at := steps(unknown)
	if len(at) == 0 {
		return ""
	}
	misspelt := at[len(at)-1]
	parent := typeAt(t, at[:len(at)-1])
	if parent == nil || parent.Kind() != reflect.Struct {
		return ""
	}
	known := fields(parent)
	delete(known, misspelt) // the type has more than is served
	name, ok := spelling.Nearest(misspelt, slices.Sorted(maps.Keys(known)))
	if !ok {
		return ""
	}
	return strings.TrimSuffix(unknown, misspelt) + name
}

// mostShown bounds a value that is shown, in bytes.
const mostShown = 60

// show is a value in a message.
func show(v any) string {
	data, err := json.Marshal(v)
	if err != nil || len(data) > mostShown {
		return ""
	}
	return string(data)
}
