package check

import (
	"errors"
	"fmt"

	"aether.io/aether/internal/object"
)

// InvalidError says that a model cannot be served by Envoy. It is found before the
// resource leaves the controller, because Envoy refuses many resources for one bad one.
type InvalidError struct {
	Origin []object.Key // the objects the resource was made from
	Route  string       // the route at fault, empty if it is no route's
	Field  string       // what is wrong, in model terms
	Err    error
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns the reason without the place.
func (e *InvalidError) Unwrap() error { return e.Err }

// Invalid is an InvalidError about a field.
func Invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Err: fmt.Errorf(format, args...)}
}

// Within puts a place before the place an error names; nil stays nil.
func Within(place string, err error) error {
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return &InvalidError{Origin: e.Origin, Route: e.Route, Field: place + ": " + e.Field, Err: e.Err}
	}
	if err != nil {
		return &InvalidError{Field: place, Err: err}
	}
	return nil
}
