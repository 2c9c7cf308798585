package envoy

import (
	"errors"

	"aether.io/aether/internal/envoy/check"
	"aether.io/aether/internal/object"
)

// InvalidError says that a model cannot be served by Envoy.
type InvalidError = check.InvalidError

func invalid(field, format string, args ...any) error { return check.Invalid(field, format, args...) }

// within puts a place before the place an error names.
func within(place string, err error) error { return check.Within(place, err) }

// attribute names the objects an error is about.
func attribute(origin []object.Key, err error) error {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		e.Origin = origin
	}
	return err
}
