// Package quarantine finds the object that makes Envoy refuse a resource which several
// objects share, so that one bad object does not hold back its neighbours. It watches
// what changed and what was refused, and answers with the objects to hold at the version
// that was last accepted; the caller rebuilds the resources. It does no IO and has no clock.
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

// Held is an object that is in quarantine.
type Held struct {
	Object   object.Object // what to use in its place; nil: leave it out
	Resource resource.Name // what was refused because of it
	Detail   string        // what Envoy said
}

// Court decides which objects are held. It is not safe for concurrent use: it belongs
// to the one writer of the graph.
type Court struct {
	// open holds, per shared resource that is not known to be accepted yet, the
	// objects that changed since it last was.
	open  map[resource.Name]map[object.Key]earlier
	held  map[object.Key]Held
	queue []*resource.Resource // refused resources whose turn has not come
	trial *trial
	// elsewhere holds the content of resources that are refused whichever of their
	// objects are held: no second search would find more.
	elsewhere map[resource.Name]resource.Hash
}

// earlier is what an object was before its present version. Several changes can come
// before the first of them is answered for: then the version before the last may have
// been accepted or not, while the one before them all was.
type earlier struct {
	accepted object.Object // nil: there was none
	last     object.Object
}

// trial is the search in one resource. All suspects are held but those on probation:
// at their last versions, or, if these are refused as well, at the accepted ones.
type trial struct {
	about     resource.Name
	content   resource.Hash // of the resource as it was refused
	detail    string
	all       bool // with every suspect at its accepted version nothing is left
	far       bool // suspects are held at their accepted versions
	suspects  map[object.Key]earlier
	groups    [][]object.Key // still to be tried, each known to be bad as a whole or unknown
	probation []object.Key   // released, the answer is awaited; nil before all are held
}

// at is the version at which a suspect is held.
func (t *trial) at(k object.Key) object.Object {
	if t.far {
		return t.suspects[k].accepted
	}
	return t.suspects[k].last
}

// New returns a Court that holds nothing.
func New() *Court {
	return &Court{open: map[resource.Name]map[object.Key]earlier{}, held: map[object.Key]Held{}, elsewhere: map[resource.Name]resource.Hash{}}
}

// Held returns what is in quarantine now, objects under trial included.
func (c *Court) Held() map[object.Key]Held {
	out := maps.Clone(c.held)
	if c.trial != nil {
		for k := range c.trial.suspects {
			if !slices.Contains(c.trial.probation, k) {
				out[k] = Held{Object: c.trial.at(k), Resource: c.trial.about, Detail: c.trial.detail}
			}
		}
	}
	return out
}

// Convicted returns what is in quarantine without what is still under trial.
func (c *Court) Convicted() map[object.Key]Held { return maps.Clone(c.held) }

// Changed notes that objects changed, from the versions in before (nil: did not exist),
// and that resources were rebuilt from them. Whatever changed is free of suspicion
// until it is refused again.
func (c *Court) Changed(before map[object.Key]object.Object, rebuilt []*resource.Resource) {
	for k := range before {
		delete(c.held, k)
	}
	for _, r := range rebuilt {
		if !shared(r) {
			continue
		}
		for _, k := range r.Origin {
			old, changed := before[k]
			if !changed || k.Kind != object.HTTPRoute {
				continue
			}
			if c.open[r.Name] == nil {
				c.open[r.Name] = map[object.Key]earlier{}
			}
			e, known := c.open[r.Name][k]
			if !known {
				e.accepted = old
			}
			e.last = old
			c.open[r.Name][k] = e
			delete(c.elsewhere, r.Name)
		}
		for k := range before { // what no longer takes part in r must not come back by being held
			if !slices.Contains(r.Origin, k) {
				delete(c.open[r.Name], k)
			}
		}
		if c.trial != nil && c.trial.about == r.Name {
			c.trial = nil // what was being tried is no longer what proxies answer about
		}
	}
}

// shared reports whether several routes make up r, so that one can hold back another.
func shared(r *resource.Resource) bool {
	n := 0
	for _, k := range r.Origin {
		if k.Kind == object.HTTPRoute {
			n++
		}
	}
	return n > 1
}

// Refused notes that proxies refuse r's current content. Step takes it from there.
func (c *Court) Refused(r *resource.Resource) {
	if !shared(r) || c.trial != nil && c.trial.about == r.Name ||
		slices.ContainsFunc(c.queue, func(q *resource.Resource) bool { return q.Name == r.Name }) {
		return
	}
	if content, known := c.elsewhere[r.Name]; known && content == r.Hash {
		return
	}
	if c.open[r.Name] == nil { // nothing is known to have changed: every route is a suspect
		c.open[r.Name] = map[object.Key]earlier{}
		for _, k := range r.Origin {
			if k.Kind == object.HTTPRoute {
				c.open[r.Name][k] = earlier{}
			}
		}
	}
	c.queue = append(c.queue, r)
}

func (c *Court) begin(r *resource.Resource, detail string) {
	suspects := maps.Clone(c.open[r.Name])
	for k := range c.held {
		delete(suspects, k)
	}
	if len(suspects) == 0 {
		return
	}
	keys := slices.SortedFunc(maps.Keys(suspects), object.Key.Compare)
	c.trial = &trial{about: r.Name, content: r.Hash, detail: detail, suspects: suspects, groups: halves(keys)}
	c.trial.all = !slices.ContainsFunc(r.Origin, func(k object.Key) bool {
		e, suspect := suspects[k]
		_, held := c.held[k]
		return k.Kind == object.HTTPRoute && !held && (!suspect || e.accepted != nil)
	})
}

// halves splits a group that is known to be bad; a group of one is kept, it is the culprit.
func halves(keys []object.Key) [][]object.Key {
	if len(keys) == 1 {
		return [][]object.Key{keys}
	}
	return [][]object.Key{keys[:len(keys)/2], keys[len(keys)/2:]}
}

// Watched returns the resources about which Step wants an answer.
func (c *Court) Watched() []resource.Name {
	out := slices.SortedFunc(maps.Keys(c.open), resource.Name.Compare)
	return out
}

// Step goes on with what proxies answer about each watched resource, and reports
// whether Held changed. Call it again after the resources have been rebuilt and
// answered for.
func (c *Court) Step(answer func(resource.Name) (Answer, string)) bool {
	for n := range c.open {
		if c.trial != nil && c.trial.about == n {
			continue
		}
		if a, _ := answer(n); a == Accepted {
			delete(c.open, n)
		}
	}
	if c.trial == nil {
		if len(c.queue) == 0 {
			return false
		}
		next := c.queue[0]
		c.queue = c.queue[1:]
		if a, detail := answer(next.Name); a == Refused {
			c.begin(next, detail)
		}
		return c.trial != nil // what proxies say next is about the resource without its suspects
	}
	return c.try(answer)
}

// try moves the running trial on by one answer.
func (c *Court) try(answer func(resource.Name) (Answer, string)) bool {
	t := c.trial
	a, detail := answer(t.about)
	if a == Awaited {
		return false
	}
	if a == Refused && t.probation == nil && !t.far {
		t.far = true
		return true
	}
	if a == Refused && t.probation == nil {
		// Refused with every suspect at its accepted version: the cause is elsewhere.
		if t.all {
			c.elsewhere[t.about] = t.content
		}
		c.trial = nil
		delete(c.open, t.about)
		return true
	}
	if a == Refused {
		t.detail = detail
		c.refusedGroup(t)
	} else {
		for _, k := range t.probation { // they are innocent: somebody runs them
			delete(t.suspects, k)
		}
	}
	t.probation = nil
	if len(t.groups) == 0 {
		c.trial = nil
		delete(c.open, t.about)
		return true
	}
	// A lone last group is the culprit by exclusion only if it was split off a bad
	// one whose other half was innocent; trying it costs one answer and proves it.
	t.probation, t.groups = t.groups[0], t.groups[1:]
	return true
}

// refusedGroup convicts a group of one and splits a larger one.
func (c *Court) refusedGroup(t *trial) {
	if len(t.probation) > 1 {
		t.groups = append(halves(t.probation), t.groups...)
		return
	}
	k := t.probation[0]
	c.held[k] = Held{Object: t.at(k), Resource: t.about, Detail: t.detail}
	delete(t.suspects, k)
}
