package unit

import (
	"slices"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/report"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/scope"
)

// Set makes e what is seen under k.
func (u *Units) Set(k object.Key, e entry.Entry) { u.entries.Set(k, e) }

// Delete makes nothing seen under k.
func (u *Units) Delete(k object.Key) { u.entries.Delete(k) }

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

func (u *Units) putOne(c *sheet.Cell, s scope.Scope, r *resource.Resource) { u.put(c, s, r) }

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
