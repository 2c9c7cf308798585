package census

import (
	"slices"
	"time"

	"aether.io/aether/internal/fleet"
)

// Standing is how the proxies of a scope stand to a position.
type Standing struct {
	Total  int
	Behind int
	New    int    // of those behind, who has yet to answer for the first time and has time to
	Unseen int    // of those behind, who may be connected to another controller, which knows more
	Sum    uint64 // differs when something else is to be said of those who are named
	census *Census
	named  []int
}

// At is how they stand to a position that is none after the census's.
func (c *Census) At(position uint64) Standing {
	at, _ := slices.BinarySearchFunc(c.steps[1:], position, func(s step, position uint64) int {
		if s.reached < position {
			return -1
		}
		return 1
	})
	s := c.steps[at] // those before it are in it
	return Standing{Total: len(c.roll), Behind: s.behind, New: s.fresh, Unseen: s.unseen, Sum: s.sum, census: c, named: s.longest}
}

// Longest is those who are behind, seen, and named: at most MaxNamed, the longest first.
func (s Standing) Longest() []fleet.Member { return s.census.pick(s.named) }

// Refusing is those whose Envoys refuse what is counted, by name: at most MaxNamed.
func (c *Census) Refusing() []fleet.Member { return c.pick(c.refusing) }

// Refuses reports whether an Envoy refuses what is counted.
func (c *Census) Refuses() bool { return len(c.refusing) > 0 }

// First is the first proxies by name, at most MaxNamed.
func (c *Census) First() []fleet.Member { return c.roll[:min(len(c.roll), MaxNamed)] }

// Firsts differs when something else is to be said of those who are First: who they are, or
// what they have reached.
func (c *Census) Firsts() uint64 { return c.firsts }

// Position is the newest that it answers for.
func (c *Census) Position() uint64 { return c.position }

// Grows is when somebody who is new is so no more; zero: nobody is new.
func (c *Census) Grows() time.Time { return c.grows }

// HasBetween reports whether a proxy has reached at least one position, and not the other.
func (c *Census) HasBetween(from, to uint64) bool {
	return slices.ContainsFunc(c.roll, func(m fleet.Member) bool { return from <= m.Reached && m.Reached < to })
}

func (c *Census) pick(indices []int) []fleet.Member {
	out := make([]fleet.Member, 0, len(indices))
	for _, i := range indices {
		out = append(out, c.roll[i])
	}
	return out
}
