// Package quarantine finds the object that makes Envoy refuse a resource which several
// objects share, so that one bad object does not hold back its neighbours. It watches
// what changed and what was refused, and answers with two things: the objects that are
// convicted, to be held at an earlier version; and, while it searches, what to try in a
// copy of the resource that no request reaches. The caller builds both: what is not
// convicted is never taken out of anything but a copy. It does no IO and has no clock.
package quarantine

import (
	"maps"
	"slices"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

// Answer is what proxies say of a resource's current content.
type Answer uint8

// The answers.
const (
	Awaited  Answer = iota
	Accepted        // by all
	Refused         // by all: it is the resource's fault
	Disputed        // some run it, some refuse it: it is the fault of these, who keep what they had
)

// Ask is how the proxies' answer about a resource is asked for, with what Envoy said if
// it is refused. A resource that is not there is accepted.
type Ask func(resource.Name) (Answer, string)

// Edit is what a change made of an object; nil: there is none.
type Edit struct{ Before, After object.Object }

// Court decides which objects are held. It is not safe for concurrent use: it belongs
// to the one writer of the graph.
type Court struct {
	newest func(object.Key) object.Object

	// open holds, per shared resource that is not known to be accepted yet, the
	// objects that changed since it last was.
	open      map[resource.Name]map[object.Key]history
	convicted map[object.Key]Conviction
	queue     []*resource.Resource // refused resources whose turn has not come
	trial     *trial
	// elsewhere holds the content of resources for whose refusal no object is to blame:
	// no second search would find more.
	elsewhere map[resource.Name]resource.Hash
}

// New returns a Court that has convicted nobody. newest tells the present version of an
// object, whether it is held or not; nil: there is none.
func New(newest func(object.Key) object.Object) *Court {
	return &Court{
		newest: newest, open: map[resource.Name]map[object.Key]history{}, convicted: map[object.Key]Conviction{}, elsewhere: map[resource.Name]resource.Hash{},
	}
}

// Recall takes up convictions of an earlier process. It comes before the first Changed,
// by which they stand for the objects that have the same content still.
func (c *Court) Recall(convicted map[object.Key]Conviction) { maps.Copy(c.convicted, convicted) }

// Forget drops the convictions of objects that there are not, once all are known.
func (c *Court) Forget() {
	maps.DeleteFunc(c.convicted, func(k object.Key, _ Conviction) bool { return c.newest(k) == nil })
}

// Convicted returns what is in quarantine.
func (c *Court) Convicted() map[object.Key]Conviction { return maps.Clone(c.convicted) }

// Trial is what is to be tried: a copy of the resource about, as it were if exactly these
// objects were held, at these versions. ok is false if nothing is to be tried.
func (c *Court) Trial() (about resource.Name, held map[object.Key]object.Object, ok bool) {
	if c.trial == nil {
		return resource.Name{}, nil, false
	}
	held = map[object.Key]object.Object{}
	for k, v := range c.convicted {
		held[k] = v.Instead
	}
	maps.Copy(held, c.trial.held())
	return c.trial.about, held, true
}

// Searches reports whether it is still to be found out why the resource is refused.
func (c *Court) Searches(n resource.Name) bool {
	return c.trial != nil && (c.trial.about == n || c.queued(n) >= 0)
}

// Changed notes that objects changed. A conviction stands for as long as the object's
// content is what was convicted; else the object is free of suspicion until it is refused
// again. It returns what resources were made of before: that is for Rebuilt.
func (c *Court) Changed(edits map[object.Key]Edit) (before map[object.Key]object.Object) {
	before = make(map[object.Key]object.Object, len(edits))
	for k, e := range edits {
		before[k] = e.Before
		v, convicted := c.convicted[k]
		if !convicted {
			continue
		}
		before[k] = v.Instead
		if e.After == nil || ContentOf(e.After) != v.Content {
			delete(c.convicted, k)
		}
	}
	return before
}

// Rebuilt notes which resources were made anew because of what Changed was told.
func (c *Court) Rebuilt(rebuilt []*resource.Resource, before map[object.Key]object.Object) {
	for _, r := range rebuilt {
		if c.trial != nil && c.trial.about == r.Name {
			c.trial = nil // proxies are about to answer for another content
		}
		c.suspect(r, before)
	}
}

// suspect notes which of a rebuilt resource's objects have changed.
func (c *Court) suspect(r *resource.Resource, before map[object.Key]object.Object) {
	routes := sharers(r)
	if len(routes) < 2 {
		delete(c.open, r.Name)
		return
	}
	for _, k := range routes {
		old, changed := before[k]
		if _, convicted := c.convicted[k]; !changed || convicted {
			continue
		}
		if c.open[r.Name] == nil {
			c.open[r.Name] = map[object.Key]history{}
		}
		c.open[r.Name][k] = c.open[r.Name][k].then(old)
		delete(c.elsewhere, r.Name)
	}
	for k := range before { // what no longer takes part in r must not come back by being held
		if !slices.Contains(routes, k) {
			delete(c.open[r.Name], k)
		}
	}
}

// sharers are the routes that make up r. One can hold back another if there are several.
func sharers(r *resource.Resource) []object.Key {
	var routes []object.Key
	for _, k := range r.Origin {
		if k.Kind == object.HTTPRoute {
			routes = append(routes, k)
		}
	}
	return routes
}

// Refused notes that proxies refuse r's current content. Step takes it from there.
func (c *Court) Refused(r *resource.Resource) {
	if content, known := c.elsewhere[r.Name]; known && content == r.Hash {
		return
	}
	switch i := c.queued(r.Name); {
	case len(sharers(r)) < 2, c.trial != nil && c.trial.about == r.Name:
	case i >= 0:
		c.queue[i] = r
	default:
		c.queue = append(c.queue, r)
	}
}

func (c *Court) queued(n resource.Name) int {
	return slices.IndexFunc(c.queue, func(q *resource.Resource) bool { return q.Name == n })
}

// Step goes on with what proxies answer about originals and about the copy on trial,
// which is asked for by the original's name. It reports whether what is convicted or
// what is to be tried may have changed; call it again then, once the copy is there.
func (c *Court) Step(original, copied Ask) bool {
	for n := range c.open {
		if a, _ := original(n); a == Accepted {
			delete(c.open, n)
		}
	}
	if c.trial != nil {
		if a, _ := original(c.trial.about); a == Accepted || a == Disputed {
			c.trial = nil // somebody runs it after all
			return true
		}
		return c.try(copied)
	}
	for len(c.queue) > 0 {
		next := c.queue[0]
		c.queue = c.queue[1:]
		if a, _ := original(next.Name); a == Refused && c.begin(next) {
			return true
		}
	}
	return false
}

// try moves the running trial on by one answer.
func (c *Court) try(copied Ask) bool {
	t := c.trial
	a, detail := copied(t.about)
	switch {
	case a == Awaited:
		return false
	case len(t.earlier) > 0 && a == Refused:
		if t.earlier = t.earlier[:len(t.earlier)-1]; len(t.earlier) > 0 {
			return true
		}
		c.convict(t, nil)
	case len(t.earlier) > 0:
		c.convict(t, t.earlier[len(t.earlier)-1])
	case a == Refused && t.probation == nil:
		if !t.widen() {
			c.close(t)
		}
		return true
	case a == Refused && len(t.probation) > 1:
		t.groups = append(halves(t.probation), t.groups...)
	case a == Refused:
		t.detail = detail
		if t.earlier = t.suspects[t.probation[0]].versions(); len(t.earlier) > 0 {
			return true
		}
		c.convict(t, nil)
	default: // they are innocent: somebody runs them. Should the search begin anew, they are known to be.
		for _, k := range t.probation {
			delete(t.suspects, k)
			delete(c.open[t.about], k)
		}
	}
	t.probation = nil
	if len(t.groups) == 0 {
		c.close(t)
		return true
	}
	// A lone last group is the culprit by exclusion only if it was split off a bad
	// one whose other half was innocent; trying it costs one answer and proves it.
	t.probation, t.groups = t.groups[0], t.groups[1:]
	return true
}

// convict ends the probation of a culprit.
func (c *Court) convict(t *trial, instead object.Object) {
	k := t.probation[0]
	c.convicted[k] = Conviction{Content: ContentOf(c.newest(k)), Instead: instead, Resource: t.about, Detail: t.detail}
	delete(t.suspects, k)
	t.earlier, t.convicted = nil, true
}

// close ends a trial that has found what there is to be found.
func (c *Court) close(t *trial) {
	c.trial = nil
	delete(c.open, t.about)
	if !t.convicted {
		c.elsewhere[t.about] = t.content
	}
}
