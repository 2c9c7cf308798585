// Package entry is where objects enter the routing graph: what is seen under each key,
// what is computed for as long as it is there, and which objects may refer to which. It
// makes nothing of them.
package entry

import (
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
)

// Entry is an object as the units see it.
type Entry struct {
	Object     object.Object // nil: none was ever admitted
	Generation int64         // of the newest object, which may not be this one, nor admitted
	UID        types.UID     // likewise
	Refused    string        // why what is written now is not this object; empty if it is
	RefusedAt  int64         // generation of what is refused; 0: nothing is, or it is not known
	// Held says that nothing may be made of the object, though it exists and has a status.
	Held bool
}

// Entries is every object there is.
type Entries struct {
	objects sheet.Input[object.Key, Entry]
	rooted  map[object.Key]struct{}
	roots   map[object.Kind][]Root
	grants  sheet.Group[string, string, *gatewayv1.ReferenceGrant] // by namespace
}

// Root is a formula by name, of any value.
type Root interface {
	Pin(key.Name)
	Unpin(key.Name)
}

// New adds what reads ReferenceGrants to a sheet.
func New(s *sheet.Sheet) *Entries {
	e := &Entries{rooted: map[object.Key]struct{}{}, roots: map[object.Kind][]Root{}}
	e.Root(object.ReferenceGrant, sheet.NewFormula(s, e.computeGrant))
	return e
}

// Root has formulas computed for as long as an object of that kind exists. It must be
// called before the first Set.
func (e *Entries) Root(kind object.Kind, list ...Root) {
	e.roots[kind] = append(e.roots[kind], list...)
}

// Set makes what is seen under k.
func (e *Entries) Set(k object.Key, seen Entry) {
	e.objects.Set(k, seen)
	if _, known := e.rooted[k]; !known {
		e.rooted[k] = struct{}{}
		for _, f := range e.roots[k.Kind] {
			f.Pin(key.Name{Namespace: k.Namespace, Name: k.Name})
		}
	}
}

// Delete makes nothing seen under k.
func (e *Entries) Delete(k object.Key) {
	e.objects.Delete(k)
	if _, known := e.rooted[k]; known {
		delete(e.rooted, k)
		for _, f := range e.roots[k.Kind] {
			f.Unpin(key.Name{Namespace: k.Namespace, Name: k.Name})
		}
	}
}

// See reads an object that has a status: it is there even while nothing may be made of it.
func See[T object.Object](e *Entries, c *sheet.Cell, k object.Key) (T, Entry, bool) {
	seen, there := e.objects.Get(c, k)
	o, typed := seen.Object.(T)
	return o, seen, there && typed
}

// Get reads an object to make something of it; it is the zero T if there is none.
func Get[T object.Object](e *Entries, c *sheet.Cell, k object.Key) (T, bool) {
	o, seen, there := See[T](e, c, k)
	if !there || seen.Held {
		var zero T
		return zero, false
	}
	return o, true
}

// Refused is why what is written now under k is not what is seen there; empty if it is.
func (e *Entries) Refused(c *sheet.Cell, k object.Key) string {
	seen, _ := e.objects.Get(c, k)
	return seen.Refused
}
