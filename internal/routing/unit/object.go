package unit

import (
	"slices"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// Entry is an object as the units see it.
type Entry struct {
	Object     object.Object // nil: none was ever admitted
	Generation int64         // of the newest object, which may not be this one
	Refused    string        // why what is written now is not this object; empty if it is
	// Held says that nothing may be made of the object, though it exists and has a status.
	Held bool
}

// Set makes e what is seen under k.
func (u *Units) Set(k object.Key, e Entry) {
	u.objects.Set(k, e)
	if _, known := u.rooted[k]; !known {
		u.rooted[k] = none{}
		for _, f := range u.roots[k.Kind] {
			f.Pin(key.Name{Namespace: k.Namespace, Name: k.Name})
		}
	}
}

// Delete makes nothing seen under k.
func (u *Units) Delete(k object.Key) {
	u.objects.Delete(k)
	if _, known := u.rooted[k]; known {
		delete(u.rooted, k)
		for _, f := range u.roots[k.Kind] {
			f.Unpin(key.Name{Namespace: k.Namespace, Name: k.Name})
		}
	}
}

// see reads an object that has a status: it is there even while nothing may be made of it.
func see[T object.Object](u *Units, c *sheet.Cell, k object.Key) (T, Entry, bool) {
	e, there := u.objects.Get(c, k)
	o, typed := e.Object.(T)
	return o, e, there && typed
}

// get reads an object to make something of it; it is the zero T if there is none.
func get[T object.Object](u *Units, c *sheet.Cell, k object.Key) (T, bool) {
	o, e, there := see[T](u, c, k)
	if !there || e.Held {
		var zero T
		return zero, false
	}
	return o, true
}

// refused is why what is written now under k is not what is seen there; empty if it is.
func (u *Units) refused(c *sheet.Cell, k object.Key) string {
	e, _ := u.objects.Get(c, k)
	return e.Refused
}

// put hands resources to the world of s and returns their names; nil ones are left out.
func (u *Units) put(c *sheet.Cell, s scope.Scope, list ...*resource.Resource) []resource.Name {
	for _, r := range list {
		if r != nil {
			u.world.Put(c, Resource{Scope: s, Of: r.Name}, r)
		}
	}
	return names(list...)
}

// Resource is what is in that place now, nil if nothing is.
func (u *Units) Resource(at Resource) *resource.Resource { return u.world.Get(at) }

func (u *Units) putScope(c *sheet.Cell, s scope.Scope, r *resource.Resource) { u.put(c, s, r) }

// say hands out a status.
func (u *Units) say(c *sheet.Cell, s report.Status) { u.statuses.Put(c, s.Key, s) }

// names is the sorted names of those resources that are not nil.
func names(list ...*resource.Resource) []resource.Name {
	var out []resource.Name
	for _, r := range list {
		if r != nil {
			out = append(out, r.Name)
		}
	}
	return sorted(out)
}

func sorted(list []resource.Name) []resource.Name {
	slices.SortFunc(list, resource.Name.Compare)
	return slices.Compact(list)
}
