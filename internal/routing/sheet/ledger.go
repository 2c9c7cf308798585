package sheet

import "aether.io/aether/internal/routing/ledger"

// Ledger is a column of accounts (package ledger): cells put members into them, and others
// read whether a member has what it asks for. Who reads it is computed again only when that
// changes for the member, whatever becomes of the others.
type Ledger[G, M, I comparable] struct {
	bound    int64
	cost     func(I) int64
	compare  func(a, b M) int
	accounts map[G]*account[M, I]
}

type account[M, I comparable] struct {
	*ledger.Account[M, I]
	owners  map[M]*Cell
	answers map[M]*answer
	drop    func()
}

// answer is whether one member has what it asks for, for those who read it.
type answer struct {
	readers
	tidy func()
}

func (n *answer) join(c *Cell) { n.readers[c] = struct{}{} }

func (n *answer) leave(c *Cell) {
	delete(n.readers, c)
	n.tidy()
}

// NewLedger makes a ledger of no accounts; each has the bound for itself.
func NewLedger[G, M, I comparable](bound int64, cost func(I) int64, compare func(a, b M) int) *Ledger[G, M, I] {
	return &Ledger[G, M, I]{bound: bound, cost: cost, compare: compare, accounts: map[G]*account[M, I]{}}
}

func (l *Ledger[G, M, I]) account(k G) *account[M, I] {
	a := l.accounts[k]
	if a == nil {
		a = &account[M, I]{
			Account: ledger.New[M, I](l.bound, l.cost, l.compare),
			owners:  map[M]*Cell{}, answers: map[M]*answer{},
			drop: func() { delete(l.accounts, k) },
		}
		l.accounts[k] = a
	}
	return a
}

func (a *account[M, I]) tidy() {
	if a.Len() == 0 && len(a.answers) == 0 {
		a.drop()
	}
}

func (a *account[M, I]) tell(m M, others []M) {
	for _, o := range append(others, m) {
		if n := a.answers[o]; n != nil {
			n.touch()
		}
	}
}

// Put makes m a member of account k for as long as the cell by puts it.
func (l *Ledger[G, M, I]) Put(by *Cell, k G, m M, b ledger.Bid[I]) {
	type where struct {
		in *Ledger[G, M, I]
		k  G
		m  M
	}
	a := l.account(k)
	by.puts[where{l, k, m}] = func() {
		if a.owners[m] != by {
			return
		}
		delete(a.owners, m)
		a.tell(m, a.Remove(m))
		a.tidy()
	}
	a.owners[m] = by
	a.tell(m, a.Account.Put(m, b))
}

// Get is whether m of account k has what it asks for, and what that would cost alone.
func (l *Ledger[G, M, I]) Get(by *Cell, k G, m M) (has bool, alone int64) {
	a := l.account(k)
	n := a.answers[m]
	if n == nil {
		n = &answer{readers: readers{}}
		n.tidy = func() {
			if len(n.readers) == 0 {
				delete(a.answers, m)
				a.tidy()
			}
		}
		a.answers[m] = n
	}
	by.read(n)
	return a.Has(m), a.Alone(m)
}
