package quarantine

import (
	"slices"

	"aether.io/aether/internal/object"
)

// history is what a resource was made of before an object's present version, oldest
// first; nil: of nothing. Several changes can come before the first of them is answered
// for: what is before them all was accepted, unless the court is new and does not know
// of anything before; the others may have been or not. The zero history knows nothing.
type history []object.Object

// Of a history that gets long the ends are kept: a new court's second version is as good
// as another's first.
const (
	mostVersions = 8
	oldestKept   = 2
)

// then is the history after another change, before which the object was old.
func (h history) then(old object.Object) history {
	out := append(slices.Clone(h), old)
	if len(out) > mostVersions {
		out = slices.Delete(out, oldestKept, oldestKept+1)
	}
	return out
}

// versions are those at which the object can be held.
func (h history) versions() history {
	return slices.DeleteFunc(slices.Clone(h), func(o object.Object) bool { return o == nil })
}
