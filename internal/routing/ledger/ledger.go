// Package ledger shares a bound among members by age: who comes first has, until the sum is
// above the bound; the rest has nothing. What it costs to change one member is logarithmic in
// their number, and linear in how many others that lets in or leaves out. It knows nothing of
// what is shared, and is not safe for concurrent use.
package ledger

import (
	"cmp"
	"slices"
)

// Bid is what a member asks for: something of its own, and items that cost once, however
// many members ask for them.
type Bid[I comparable] struct {
	Age   int64 // lower is older
	Own   int64 // at least 0
	Items []I   // each once
}

// Account is the members among whom one bound is shared.
type Account[M, I comparable] struct {
	bound   int64
	cost    func(I) int64
	compare func(a, b M) int
	bids    map[M]Bid[I]
	tree    tree[M]        // of those that do not exceed the bound alone
	users   map[I]*tree[M] // likewise
}

// New makes an account of no members. cost is what an item costs, always the same, and at least
// 0; compare orders members of the same age.
func New[M, I comparable](bound int64, cost func(I) int64, compare func(a, b M) int) *Account[M, I] {
	return &Account[M, I]{
		bound: bound, cost: cost, compare: compare,
		bids: map[M]Bid[I]{}, users: map[I]*tree[M]{}, tree: tree[M]{compare: compare},
	}
}

// Len is the number of members.
func (a *Account[M, I]) Len() int { return len(a.bids) }

// alone is what a bid costs if nobody else asks for its items.
func (a *Account[M, I]) alone(b Bid[I]) int64 {
	sum := b.Own
	for _, i := range b.Items {
		sum += a.cost(i)
	}
	return sum
}

// Alone is what a member would cost by itself.
func (a *Account[M, I]) Alone(m M) int64 { return a.alone(a.bids[m]) }

// Has reports whether a member has what it asks for. One that exceeds the bound alone never
// has, and takes nothing from those after it.
func (a *Account[M, I]) Has(m M) bool {
	b, there := a.bids[m]
	if !there || a.alone(b) > a.bound {
		return false
	}
	first := a.tree.over(a.bound)
	return first == nil || a.tree.order(place[M]{b.Age, m}, first.at) < 0
}

// Put makes m a member, or changes what it asks for, and returns the other members who have
// what they ask for since and had not, or the other way round.
func (a *Account[M, I]) Put(m M, b Bid[I]) (others []M) {
	if old, there := a.bids[m]; there && old.Age == b.Age && old.Own == b.Own && slices.Equal(old.Items, b.Items) {
		return nil
	}
	return a.change(m, func() {
		a.withdraw(m)
		a.bids[m] = b
		a.enter(m, b)
	})
}

// Remove makes m no member, and returns what Put does.
func (a *Account[M, I]) Remove(m M) (others []M) {
	return a.change(m, func() {
		a.withdraw(m)
		delete(a.bids, m)
	})
}

func (a *Account[M, I]) change(m M, do func()) (others []M) {
	before := a.cut()
	do()
	after := a.cut()
	from, to := before, after
	if before == nil || after != nil && a.tree.order(*after, *before) < 0 {
		from, to = after, before
	}
	if from == nil {
		return nil
	}
	a.tree.between(*from, to, func(other M) {
		if other != m {
			others = append(others, other)
		}
	})
	return others
}

// cut is the place of the first member who has nothing; nil: each has.
func (a *Account[M, I]) cut() *place[M] {
	if n := a.tree.over(a.bound); n != nil {
		return &n.at
	}
	return nil
}

func (a *Account[M, I]) enter(m M, b Bid[I]) {
	if a.alone(b) > a.bound {
		return
	}
	at := place[M]{b.Age, m}
	a.tree.add(at, b.Own)
	for _, i := range b.Items {
		users := a.users[i]
		if users == nil {
			users = &tree[M]{compare: a.compare}
			a.users[i] = users
		}
		a.pass(users, a.cost(i), func() { users.add(at, 0) })
	}
}

func (a *Account[M, I]) withdraw(m M) {
	b, there := a.bids[m]
	if !there || a.alone(b) > a.bound {
		return
	}
	at := place[M]{b.Age, m}
	for _, i := range b.Items {
		users := a.users[i]
		a.pass(users, a.cost(i), func() { users.remove(at) })
		if users.root == nil {
			delete(a.users, i)
		}
	}
	a.tree.remove(at)
}

// pass has the first of an item's users pay its cost, whoever that is before and after do.
func (a *Account[M, I]) pass(users *tree[M], cost int64, do func()) {
	before := users.first()
	do()
	after := users.first()
	if before != nil && after != nil && before.at == after.at {
		return
	}
	if before != nil {
		a.tree.add(before.at, -cost)
	}
	if after != nil {
		a.tree.add(after.at, cost)
	}
}

// place is where a member stands.
type place[M comparable] struct {
	age    int64
	member M
}

func (t *tree[M]) order(a, b place[M]) int {
	return cmp.Or(cmp.Compare(a.age, b.age), t.compare(a.member, b.member))
}
