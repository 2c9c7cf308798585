package routing

import (
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/unit"
	"aether.io/aether/internal/scope"
)

// Try is a copy, which no request finds (envoy.Trial), of a scope of routes as it would be
// if exactly these objects were held. It is nil if there would be none. What is handed out
// by Apply and Hold is as if Try had not been called.
func (g *Graph) Try(s scope.Scope, of resource.Name, held map[object.Key]object.Object) *resource.Resource {
	before := g.held
	g.hold(held)
	g.units.Settle()
	r := g.units.Resource(unit.Resource{Scope: s, Of: of})
	g.hold(before)
	g.units.Settle()
	if r == nil {
		return nil
	}
	trial, err := envoy.Trial(r)
	if err != nil { // not a scope: nothing else is made of several routes
		return nil
	}
	return trial
}
