package ledger_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"aether.io/aether/internal/routing/ledger"
)

const bound = 100

// cost is another one for each item.
func cost(item string) int64 { return 3 + 2*int64(item[0]-'0') }

type bids map[int]ledger.Bid[string]

// have is who has what they ask for, said plainly.
func (b bids) have() map[int]bool {
	out, paid, sum, full := map[int]bool{}, map[string]bool{}, int64(0), false
	members := make([]int, 0, len(b))
	for m := range b {
		members = append(members, m)
	}
	slices.SortFunc(members, func(x, y int) int { return cmp.Or(cmp.Compare(b[x].Age, b[y].Age), cmp.Compare(x, y)) })
	for _, m := range members {
		alone := b[m].Own
		for _, i := range b[m].Items {
			alone += cost(i)
		}
		if alone > bound {
			continue
		}
		sum += b[m].Own
		for _, i := range b[m].Items {
			if !paid[i] {
				paid[i] = true
				sum += cost(i)
			}
		}
		full = full || sum > bound
		out[m] = !full
	}
	return out
}

func TestTheFirstHaveAndOthersAreTold(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		a, want := ledger.New[int, string](bound, cost, cmp.Compare[int]), bids{}
		for step := range 400 {
			m, before := r.IntN(20), want.have()
			var told []int
			if r.IntN(3) == 0 {
				delete(want, m)
				told = a.Remove(m)
			} else {
				b := ledger.Bid[string]{Age: int64(r.IntN(8)), Own: int64(r.IntN(25))}
				if r.IntN(10) == 0 {
					b.Own = bound + 1
				}
				for i := range 4 {
					if r.IntN(3) == 0 {
						b.Items = append(b.Items, fmt.Sprint(i))
					}
				}
				want[m] = b
				told = a.Put(m, b)
			}
			after := want.have()
			var differ []int
			for o := range 20 {
				if a.Has(o) != after[o] {
					t.Fatalf("seed %d, step %d: %d has: %t, want %t", seed, step, o, a.Has(o), after[o])
				}
				if o != m && before[o] != after[o] {
					differ = append(differ, o)
				}
			}
			slices.Sort(told)
			if !slices.Equal(told, differ) {
				t.Fatalf("seed %d, step %d: told of %v, want %v", seed, step, told, differ)
			}
			if a.Len() != len(want) {
				t.Fatalf("seed %d, step %d: %d members, want %d", seed, step, a.Len(), len(want))
			}
		}
	}
}

// TestTheCostIsLogarithmic counts comparisons, of which a full count would need thousands.
func TestTheCostIsLogarithmic(t *testing.T) {
	compared := 0
	a := ledger.New[int, string](1<<40, cost, func(x, y int) int { compared++; return cmp.Compare(x, y) })
	for m := range 10_000 {
		a.Put(m, ledger.Bid[string]{Own: 1, Items: []string{"1 for all"}})
	}
	compared = 0
	a.Put(5_000, ledger.Bid[string]{Own: 2, Items: []string{"1 for all"}})
	a.Put(0, ledger.Bid[string]{Own: 2}) // who paid
	if !a.Has(5_000) || compared > 1_000 {
		t.Errorf("%d comparisons", compared)
	}
}
