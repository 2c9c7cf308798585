package sheet

import "reflect"

// Input is a column of values that are set from outside. The zero Input is empty.
type Input[K comparable, V any] struct {
	cells map[K]*given[V]
}

type given[V any] struct {
	readers
	value V
	there bool
	drop  func()
}

func (n *given[V]) join(c *Cell) { n.readers[c] = struct{}{} }

func (n *given[V]) leave(c *Cell) {
	delete(n.readers, c)
	n.tidy()
}

func (n *given[V]) tidy() {
	if len(n.readers) == 0 && !n.there {
		n.drop()
	}
}

func (i *Input[K, V]) cell(k K) *given[V] {
	n := i.cells[k]
	if n == nil {
		if i.cells == nil {
			i.cells = map[K]*given[V]{}
		}
		n = &given[V]{readers: readers{}, drop: func() { delete(i.cells, k) }}
		i.cells[k] = n
	}
	return n
}

// Set gives k a value; whoever read it, or its absence, is computed again.
func (i *Input[K, V]) Set(k K, v V) {
	n := i.cell(k)
	n.value, n.there = v, true
	n.touch()
}

// Delete takes k's value away.
func (i *Input[K, V]) Delete(k K) {
	n := i.cells[k]
	if n == nil || !n.there {
		return
	}
	var none V
	n.value, n.there = none, false
	n.touch()
	n.tidy()
}

// Get is the value of k, if there is one. That there is none is remembered too.
func (i *Input[K, V]) Get(by *Cell, k K) (V, bool) {
	n := i.cell(k)
	by.read(n)
	return n.value, n.there
}

// Group is a column of sets: each group has members with values, put there by cells. A
// cell's puts are withdrawn when it no longer makes them. One
// member has one origin; of two, the later put stays. The zero Group has no groups.
type Group[G, M comparable, V any] struct {
	groups map[G]*members[M, V]
	wants  []pinner[G]
}

// pinner is a formula of any value type.
type pinner[K comparable] interface {
	Pin(K)
	Unpin(K)
}

// members is one group: itself, what reads all of it, and what reads only its size.
type members[M comparable, V any] struct {
	readers
	size size
	all  map[M]member[V]
	drop func()
}

type member[V any] struct {
	value V
	owner *Cell
}

type size struct {
	readers
	tidy func()
}

func (n *members[M, V]) join(c *Cell) { n.readers[c] = struct{}{} }

func (n *members[M, V]) leave(c *Cell) {
	delete(n.readers, c)
	n.tidy()
}

func (n *members[M, V]) tidy() {
	if len(n.readers) == 0 && len(n.size.readers) == 0 && len(n.all) == 0 {
		n.drop()
	}
}

func (n *size) join(c *Cell) { n.readers[c] = struct{}{} }

func (n *size) leave(c *Cell) {
	delete(n.readers, c)
	n.tidy()
}

// Want has the formula's cell of a group's key pinned for as long as the group has a
// member. It must be called before the first member is put.
func (g *Group[G, M, V]) Want(f pinner[G]) { g.wants = append(g.wants, f) }

func (g *Group[G, M, V]) group(k G) *members[M, V] {
	n := g.groups[k]
	if n == nil {
		if g.groups == nil {
			g.groups = map[G]*members[M, V]{}
		}
		n = &members[M, V]{readers: readers{}, all: map[M]member[V]{}, drop: func() { delete(g.groups, k) }}
		n.size = size{readers: readers{}, tidy: n.tidy}
		g.groups[k] = n
	}
	return n
}

// Put makes m a member of group k for as long as the cell by puts it.
func (g *Group[G, M, V]) Put(by *Cell, k G, m M, v V) {
	type where struct {
		in *Group[G, M, V]
		k  G
		m  M
	}
	by.puts[where{g, k, m}] = func() { g.remove(by, k, m) }
	n := g.group(k)
	old, known := n.all[m]
	n.all[m] = member[V]{value: v, owner: by}
	if !known {
		n.size.touch()
		if len(n.all) == 1 {
			for _, f := range g.wants {
				f.Pin(k)
			}
		}
	}
	if !known || !reflect.DeepEqual(old.value, v) {
		n.touch()
	}
}

func (g *Group[G, M, V]) remove(by *Cell, k G, m M) {
	n := g.groups[k]
	if n == nil {
		return
	}
	if old, known := n.all[m]; !known || old.owner != by {
		return
	}
	delete(n.all, m)
	n.size.touch()
	n.touch()
	if len(n.all) == 0 {
		for _, f := range g.wants {
			f.Unpin(k)
		}
		n.tidy()
	}
}

// All is every member of group k with its value, in no order.
func (g *Group[G, M, V]) All(by *Cell, k G) map[M]V {
	n := g.group(k)
	by.read(n)
	all := make(map[M]V, len(n.all))
	for m, v := range n.all {
		all[m] = v.value
	}
	return all
}

// Len is the number of members of group k. Who asks only for this is not computed again
// when a member's value changes.
func (g *Group[G, M, V]) Len(by *Cell, k G) int {
	n := g.group(k)
	by.read(&n.size)
	return len(n.all)
}

// Output is a column of values that cells put for the outside, and remembers which have
// changed since it was last drained. The zero Output is empty.
type Output[K comparable, V any] struct {
	all     map[K]member[V]
	touched map[K]*V // what was there when last drained; nil: nothing
}

// Change is one value that differs from what was there at the last Drain.
type Change[K comparable, V any] struct {
	Key   K
	Value V
	Gone  bool // there is no value any more
}

// Put gives k a value for as long as the cell by puts it.
func (o *Output[K, V]) Put(by *Cell, k K, v V) {
	type where struct {
		in *Output[K, V]
		k  K
	}
	by.puts[where{o, k}] = func() {
		if o.all[k].owner == by {
			o.touch(k)
			delete(o.all, k)
		}
	}
	o.touch(k)
	if o.all == nil {
		o.all = map[K]member[V]{}
	}
	o.all[k] = member[V]{value: v, owner: by}
}

// Get is the value of k as of the last Settle; the zero V if there is none.
func (o *Output[K, V]) Get(k K) V { return o.all[k].value }

func (o *Output[K, V]) touch(k K) {
	if _, known := o.touched[k]; known {
		return
	}
	if o.touched == nil {
		o.touched = map[K]*V{}
	}
	o.touched[k] = nil
	if old, there := o.all[k]; there {
		o.touched[k] = &old.value
	}
}

// Drain returns what has changed since it was last called, in no order.
func (o *Output[K, V]) Drain() []Change[K, V] {
	var changes []Change[K, V]
	for k, old := range o.touched {
		now, there := o.all[k]
		switch {
		case !there && old != nil:
			changes = append(changes, Change[K, V]{Key: k, Gone: true})
		case there && (old == nil || !reflect.DeepEqual(*old, now.value)):
			changes = append(changes, Change[K, V]{Key: k, Value: now.value})
		}
	}
	clear(o.touched)
	return changes
}
