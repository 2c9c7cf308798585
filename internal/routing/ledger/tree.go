package ledger

// tree is places in their order with weights, of which the sum up to a place is found as fast
// as a place: a treap, whose nodes know the sum of their branches.
type tree[M comparable] struct {
	root    *node[M]
	compare func(a, b M) int
	seed    uint64
}

type node[M comparable] struct {
	at          place[M]
	weight, sum int64
	rank        uint64 // below that of what it hangs on
	left, right *node[M]
}

func (n *node[M]) total() int64 {
	if n == nil {
		return 0
	}
	return n.sum
}

func (n *node[M]) count() { n.sum = n.weight + n.left.total() + n.right.total() }

// add adds a weight to a place, which it makes if it is not there.
func (t *tree[M]) add(at place[M], weight int64) { t.root = t.insert(t.root, at, weight) }

func (t *tree[M]) insert(n *node[M], at place[M], weight int64) *node[M] {
	if n == nil {
		return &node[M]{at: at, weight: weight, sum: weight, rank: t.next()}
	}
	switch c := t.order(at, n.at); {
	case c == 0:
		n.weight += weight
	case c < 0:
		n.left = t.insert(n.left, at, weight)
		if l := n.left; l.rank > n.rank {
			n.left, l.right = l.right, n
			n.count()
			n = l
		}
	default:
		n.right = t.insert(n.right, at, weight)
		if r := n.right; r.rank > n.rank {
			n.right, r.left = r.left, n
			n.count()
			n = r
		}
	}
	n.count()
	return n
}

// next is a number that looks random (splitmix64): it decides how deep the tree is, and
// nothing of what comes of it.
func (t *tree[M]) next() uint64 {
	t.seed += 0x9e3779b97f4a7c15
	z := t.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// remove takes a place out, with all its weight.
func (t *tree[M]) remove(at place[M]) { t.root = t.cut(t.root, at) }

func (t *tree[M]) cut(n *node[M], at place[M]) *node[M] {
	if n == nil {
		return nil
	}
	switch c := t.order(at, n.at); {
	case c == 0:
		return join(n.left, n.right)
	case c < 0:
		n.left = t.cut(n.left, at)
	default:
		n.right = t.cut(n.right, at)
	}
	n.count()
	return n
}

// join makes one of two, of which every place of the first is before those of the second.
func join[M comparable](a, b *node[M]) *node[M] {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.rank > b.rank:
		a.right = join(a.right, b)
		a.count()
		return a
	}
	b.left = join(a, b.left)
	b.count()
	return b
}

// over is the first place with which the sum is above a bound; nil: the whole is not.
func (t *tree[M]) over(bound int64) *node[M] {
	var found *node[M]
	var before int64
	for n := t.root; n != nil; {
		if with := before + n.left.total() + n.weight; with > bound {
			found, n = n, n.left
		} else {
			before, n = with, n.right
		}
	}
	return found
}

func (t *tree[M]) first() *node[M] {
	n := t.root
	for n != nil && n.left != nil {
		n = n.left
	}
	return n
}

// between visits the members from a place to before another, or to the end if that is nil.
func (t *tree[M]) between(from place[M], to *place[M], visit func(M)) {
	t.walk(t.root, from, to, visit)
}

func (t *tree[M]) walk(n *node[M], from place[M], to *place[M], visit func(M)) {
	if n == nil {
		return
	}
	after, before := t.order(n.at, from) >= 0, to == nil || t.order(n.at, *to) < 0
	if after {
		t.walk(n.left, from, to, visit)
	}
	if after && before {
		visit(n.at.member)
	}
	if before {
		t.walk(n.right, from, to, visit)
	}
}
