package meshconfig

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	configv1 "aether.io/aether/api/config/v1"
)

// decode reads and validates a spec from JSON. It says everything that is wrong with it, by
// path: a field of the wrong type does not keep the range of another from being looked at.
func decode(js []byte) (spec *configv1.MeshConfigSpec, unknown []string, wrong []configv1.FieldError) {
	spec, unknown, err := configv1.DecodeSpec(js)
	if err == nil {
		return spec, unknown, Validate(spec)
	}
	wrong = fieldErrors(err)
	if rest, ok := without(js, wrong); ok {
		if spec, _, err := configv1.DecodeSpec(rest); err == nil {
			wrong = append(wrong, Validate(spec)...)
		}
	}
	slices.SortStableFunc(wrong, func(a, b configv1.FieldError) int { return strings.Compare(a.Path, b.Path) })
	return nil, nil, wrong
}

// fieldErrors takes the joined errors of a decode apart.
func fieldErrors(err error) []configv1.FieldError {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	out := make([]configv1.FieldError, 0, len(all))
	for _, e := range all {
		if field, is := errors.AsType[*configv1.FieldError](e); is {
			out = append(out, *field)
		} else {
			out = append(out, configv1.FieldError{Detail: e.Error()})
		}
	}
	return out
}

// without is a spec from which fields are taken away; not ok if what is wrong is the spec
// itself.
func without(js []byte, fields []configv1.FieldError) (rest []byte, ok bool) {
	var spec map[string]any
	if err := json.Unmarshal(js, &spec); err != nil || spec == nil {
		return nil, false
	}
	for _, f := range fields {
		if f.Path == "" {
			return nil, false
		}
		names := strings.Split(f.Path, ".") // known names, which have no dots
		in := spec
		for _, name := range names[:len(names)-1] {
			next, there := in[name].(map[string]any)
			if !there {
				return nil, false
			}
			in = next
		}
		delete(in, names[len(names)-1])
	}
	rest, err := json.Marshal(spec)
	return rest, err == nil
}
