// Package sheet is a spreadsheet without the paper: cells whose values are computed from
// other cells, each computed again only when something that it read has changed.
//
// Values enter through Inputs and Groups, flow through Formulas and leave through
// Outputs. Whatever a formula reads is remembered, whether it exists or not, so the way
// from a change to everything that depends on it needs no index of its own, and a cell
// that comes out as it was before stops the change there. Formulas must be pure: the
// same reads, the same value and the same puts. The cost of a change is then the cost
// of the cells that it reaches, however many there are beside them.
//
// A Sheet has one owner; nothing in it is safe for concurrent use. It knows nothing of
// what the values mean.
package sheet

import "reflect"

// Sheet is a set of formulas, inputs, groups and outputs that are settled together.
// The zero Sheet is empty and ready.
type Sheet struct {
	queue [][]*Cell // cells to compute, by level; entries that are no longer queued are skipped
	low   int       // no level below it holds a cell
	loose []*Cell   // cells that may have lost their last reader
	runs  int
}

// Runs is the number of cells computed since the sheet was made.
func (s *Sheet) Runs() int { return s.runs }

// Settle computes every cell that a change has reached, lowest level first, and drops
// those that nobody wants any more. It ends because a cell only reads lower levels.
func (s *Sheet) Settle() {
	for {
		if c := s.next(); c != nil {
			c.run()
			continue
		}
		if len(s.loose) == 0 {
			return
		}
		s.sweep()
	}
}

func (s *Sheet) next() *Cell {
	for ; s.low < len(s.queue); s.low++ {
		for n := len(s.queue[s.low]); n > 0; n = len(s.queue[s.low]) {
			c := s.queue[s.low][n-1]
			s.queue[s.low] = s.queue[s.low][:n-1]
			if c.queued {
				return c
			}
		}
	}
	return nil
}

func (s *Sheet) enqueue(c *Cell) {
	if c.queued {
		return
	}
	c.queued = true
	s.queue[c.level] = append(s.queue[c.level], c)
	s.low = min(s.low, c.level)
}

// sweep drops the loose cells that have neither a reader nor a pin.
func (s *Sheet) sweep() {
	loose := s.loose
	s.loose = nil
	for _, c := range loose {
		if c.pins > 0 || len(c.readers) > 0 || c.dropped {
			continue
		}
		c.dropped, c.queued = true, false
		c.forget()
		for _, withdraw := range c.puts {
			withdraw()
		}
		for n := range c.reads {
			n.leave(c)
		}
	}
}

// Cell is one computed value: what a formula's function reads and puts through.
type Cell struct {
	sheet   *Sheet
	level   int
	compute func() (changed bool)
	forget  func() // takes it out of its formula
	readers readers
	reads   map[node]struct{}
	puts    map[any]func() // what withdraws each put, by where it went
	pins    int            // groups and callers that want the cell whether it is read or not
	queued  bool
	dropped bool
}

// node is what a cell can read.
type node interface {
	join(*Cell)
	leave(*Cell)
}

type readers map[*Cell]struct{}

func (r readers) touch() {
	for c := range r {
		c.sheet.enqueue(c)
	}
}

func (c *Cell) run() {
	c.queued = false
	c.sheet.runs++
	reads, puts := c.reads, c.puts
	c.reads = make(map[node]struct{}, len(reads))
	c.puts = make(map[any]func(), len(puts))
	changed := c.compute()
	for where, withdraw := range puts {
		if _, again := c.puts[where]; !again {
			withdraw()
		}
	}
	for n := range reads {
		if _, again := c.reads[n]; !again {
			n.leave(c)
		}
	}
	if changed {
		c.readers.touch()
	}
}

func (c *Cell) read(n node) {
	if _, known := c.reads[n]; !known {
		c.reads[n] = struct{}{}
		n.join(c)
	}
}

func (c *Cell) join(by *Cell) { c.readers[by] = struct{}{} }

func (c *Cell) leave(by *Cell) {
	delete(c.readers, by)
	c.loosen()
}

func (c *Cell) loosen() {
	if len(c.readers) == 0 && c.pins == 0 {
		c.sheet.loose = append(c.sheet.loose, c)
	}
}

// Formula is a column of cells that one function computes from their keys.
type Formula[K comparable, V any] struct {
	sheet   *Sheet
	level   int
	compute func(*Cell, K) V
	cells   map[K]*computed[V]
}

type computed[V any] struct {
	Cell
	value V
}

// NewFormula adds a formula above all that the sheet has: its cells may read those made
// before it and what those put. Values that reflect.DeepEqual calls equal are the same.
func NewFormula[K comparable, V any](s *Sheet, compute func(*Cell, K) V) *Formula[K, V] {
	s.queue = append(s.queue, nil)
	return &Formula[K, V]{sheet: s, level: len(s.queue) - 1, compute: compute, cells: map[K]*computed[V]{}}
}

// Get is the value of the cell of that key, which is computed if it is new or stale.
// To read a formula that was made later than the reader's own is a mistake in the
// program and panics.
func (f *Formula[K, V]) Get(by *Cell, k K) V {
	if by.level <= f.level {
		panic("sheet: a formula reads one that is not below it")
	}
	c := f.cells[k]
	if c == nil {
		c = f.add(k)
	}
	if c.queued {
		c.run()
	}
	by.read(&c.Cell)
	return c.value
}

// Pin keeps the cell of that key computed although nobody may read it, until Unpin has
// been called as often.
func (f *Formula[K, V]) Pin(k K) {
	c := f.cells[k]
	if c == nil {
		c = f.add(k)
	}
	c.pins++
}

// Unpin takes back one Pin.
func (f *Formula[K, V]) Unpin(k K) {
	if c := f.cells[k]; c != nil && c.pins > 0 {
		c.pins--
		c.loosen()
	}
}

func (f *Formula[K, V]) add(k K) *computed[V] {
	c := &computed[V]{Cell: Cell{sheet: f.sheet, level: f.level, readers: readers{}}}
	c.compute = func() bool {
		before := c.value
		c.value = f.compute(&c.Cell, k)
		return !reflect.DeepEqual(before, c.value)
	}
	c.forget = func() { delete(f.cells, k) }
	f.cells[k] = c
	f.sheet.enqueue(&c.Cell)
	return c
}
