package kube

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/source/material"
)

// Memory keeps, from one process to the next, what is in effect of objects that are not
// admitted as they are now.
type Memory interface {
	// Recall returns what the last process left, and what there is of it with an error too.
	Recall(ctx context.Context) (map[object.Key]object.Object, error)
	// Keep says that o is in effect in the place of what is written under k, or with nil that
	// nothing is any more. It must not block, and is called by several goroutines.
	Keep(k object.Key, o object.Object)
}

// past is what was in effect before this process. Once read it does not change.
type past struct {
	memory Memory // nil: there is none
	left   map[object.Key]object.Object
}

// recall reads it. It returns an error only if ctx is done.
func (p *past) recall(ctx context.Context, in *intake) error {
	if p.memory == nil {
		return nil
	}
	var err error
	if p.left, err = p.memory.Recall(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		in.report("last good versions", source.Warning, "what was in effect before the restart, of objects that nobody can use as they are now, is not known: "+err.Error())
	}
	return nil
}

// of is what was in effect of an object; nil if nothing is known, if that was of another
// object of the same name, or if it would not be admitted today.
func (p *past) of(k object.Key, uid types.UID) object.Object {
	o := p.left[k]
	if o == nil || o.GetUID() != uid || material.Problem(o) != "" {
		return nil
	}
	return o
}

func (p *past) keep(k object.Key, o object.Object) {
	if p.memory != nil {
		p.memory.Keep(k, o)
	}
}
