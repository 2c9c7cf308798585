// Package census boils the proxies of a scope down to what those who count them need, once
// for all of them. A roll goes in each time that something may have changed; what comes out
// is immutable, is the same value while nothing of it differs, and answers for any position
// in a time that hardly grows with the proxies. It observes no proxy and writes nothing.
//
// What else statuses are to tell of each proxy of a scope belongs here too: made in Take of
// all proxies, once, and read by each status that tells it.
package census

import (
	"cmp"
	"slices"
	"time"

	"aether.io/aether/internal/fleet"
)

// MaxNamed is how many proxies are named of those that something is wrong with.
const MaxNamed = 10

// Rules is what a census goes by.
type Rules struct {
	Now time.Time
	// Grace is how long a proxy that has answered nothing yet is new, counted from when it was
	// first on a roll.
	Grace time.Duration
	// Settled is until when those who appear are not new but come back: a process that begins
	// knows nobody.
	Settled time.Time
	// Elsewhere says that who is not connected here may be connected to another controller,
	// which alone knows what it runs.
	Elsewhere bool
}

// Census is the proxies of one scope as they stand to all positions up to one.
type Census struct {
	position  uint64
	elsewhere bool
	roll      []fleet.Member // sorted by name
	silent    map[string]silence
	steps     []step    // by what it takes to be behind; the first has those who are behind anything
	refusing  []int     // in roll: whose Envoys refuse it; at most MaxNamed
	firsts    uint64    // the sum of what is said of First
	grows     time.Time // when the next who is new is so no more; zero: nobody is
}

// silence is since when a proxy is known that has answered nothing.
type silence struct {
	uid   string
	from  time.Time
	fresh bool // it is new
}

// step is those who are behind every position above one: each has all of the one before it.
type step struct {
	reached uint64
	behind  int
	fresh   int    // of those, who is new
	unseen  int    // of those, who may be connected elsewhere
	longest []int  // in roll, of the others: at most MaxNamed, the longest first
	sum     uint64 // of what is said of those in longest
}

// Take makes a census of a roll, sorted by name, that was asked for up to a position. It is
// before, the one that was taken last, if there is nothing new in it.
func Take(before *Census, roll []fleet.Member, position uint64, r Rules) *Census {
	if before != nil && before.position == position && before.elsewhere == r.Elsewhere &&
		(before.grows.IsZero() || r.Now.Before(before.grows)) && slices.Equal(before.roll, roll) {
		return before
	}
	c := &Census{position: position, elsewhere: r.Elsewhere, roll: roll}
	c.listen(before, r)
	b := builder{Census: c, sums: make([]uint64, len(roll))}
	first := step{}
	var behind []int
	for i, m := range roll {
		switch stuck := m.Behind(0); {
		case stuck:
			b.add(&first, i)
		case m.Reached < position:
			behind = append(behind, i)
		}
		if m.Lag == fleet.LagRejected && !c.unseen(m) && len(c.refusing) < MaxNamed {
			c.refusing = append(c.refusing, i)
		}
	}
	slices.SortStableFunc(behind, func(x, y int) int { return cmp.Compare(roll[x].Reached, roll[y].Reached) })
	c.steps = append(c.steps, first)
	for _, i := range behind {
		last := c.steps[len(c.steps)-1]
		if len(c.steps) == 1 || last.reached != roll[i].Reached {
			last.reached, last.longest = roll[i].Reached, slices.Clone(last.longest)
			c.steps = append(c.steps, last)
		}
		b.add(&c.steps[len(c.steps)-1], i)
	}
	for i := range c.steps {
		b.seal(&c.steps[i])
	}
	for _, m := range c.First() {
		c.firsts = c.firsts*prime + sum(fleet.Member{Name: m.Name, Reached: m.Reached})
	}
	return c
}

// listen notes who has answered nothing, since when that is known, and who of them is new.
func (c *Census) listen(before *Census, r Rules) {
	c.silent = map[string]silence{}
	for _, m := range c.roll {
		if m.Reached > 0 {
			continue
		}
		s := silence{uid: m.UID, from: r.Now}
		if before == nil {
			s.from = time.Time{} // it was there before anybody looked
		} else if old, known := before.silent[m.Name]; known && (old.uid == m.UID || old.uid == "" || m.UID == "") {
			s.from = old.from
		}
		until := s.from.Add(r.Grace)
		if s.fresh = !s.from.Before(r.Settled) && r.Now.Before(until); s.fresh && (c.grows.IsZero() || until.Before(c.grows)) {
			c.grows = until
		}
		c.silent[m.Name] = s
	}
}

// unseen reports whether what a proxy runs may be known elsewhere only.
func (c *Census) unseen(m fleet.Member) bool { return c.elsewhere && !m.Connected }

// builder is what a census is made with.
type builder struct {
	*Census
	sums []uint64 // of what is said of each who is behind; 0: not known yet
}

// add counts one who is behind.
func (b *builder) add(s *step, i int) {
	m := b.roll[i]
	s.behind++
	switch {
	case m.Reached == 0 && b.silent[m.Name].fresh:
		s.fresh++
	case b.unseen(m):
		s.unseen++
		return // it may be no laggard
	}
	at, _ := slices.BinarySearchFunc(s.longest, i, b.compare)
	if at == MaxNamed {
		return
	}
	s.longest = slices.Insert(s.longest, at, i)
	s.longest = s.longest[:min(len(s.longest), MaxNamed)]
}

// compare orders proxies that are behind: the longest first, those last that are about to
// be sent something.
func (b *builder) compare(x, y int) int {
	m, n := b.roll[x], b.roll[y]
	if m.Since.IsZero() != n.Since.IsZero() {
		if m.Since.IsZero() {
			return 1
		}
		return -1
	}
	return cmp.Or(m.Since.Compare(n.Since), cmp.Compare(x, y))
}

// seal sums up what is said of those who are named.
func (b *builder) seal(s *step) {
	for _, list := range [][]int{s.longest, b.refusing} {
		for _, i := range list {
			if b.sums[i] == 0 {
				b.sums[i] = sum(b.roll[i])
			}
			s.sum = s.sum*prime + b.sums[i]
		}
	}
}

// prime and offset are those of FNV-1a.
const (
	prime  = 1099511628211
	offset = 14695981039346656037
)

// sum is a hash of what is said of a proxy that is behind.
func sum(m fleet.Member) uint64 {
	h := uint64(offset)
	for _, s := range []string{m.Name, m.Lag, m.Detail} {
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * prime
		}
		h = (h ^ 0xff) * prime
	}
	for _, n := range []uint64{m.Reached, uint64(m.Since.Unix())} {
		h = (h ^ n) * prime
	}
	return h
}
