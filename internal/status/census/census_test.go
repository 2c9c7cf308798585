package census_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/status/census"
)

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func rules(at time.Duration) census.Rules {
	return census.Rules{Now: began.Add(at), Grace: 30 * time.Second, Settled: began.Add(5 * time.Second)}
}

func member(i int, reached uint64) fleet.Member {
	return fleet.Member{Name: fmt.Sprintf("p%04d", i), UID: "u", Connected: true, Reached: reached}
}

func names(list []fleet.Member) []string {
	out := make([]string, 0, len(list))
	for _, m := range list {
		out = append(out, m.Name)
	}
	return out
}

// What a census says of a position is what looking at each proxy says of it.
func TestACensusSaysWhatLookingAtEachProxySays(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		const newest = 12
		var roll []fleet.Member
		for i := range r.IntN(40) {
			m := member(i, uint64(r.IntN(newest+1)))
			m.Connected = r.IntN(4) > 0
			if m.Reached < newest {
				m.Lag = fleet.LagNoAck
				if r.IntN(3) > 0 {
					m.Since = began.Add(-time.Duration(r.IntN(9)) * time.Second)
				}
			}
			switch r.IntN(10) {
			case 0:
				m.Lag, m.Detail = fleet.LagRejected, "no"
			case 1:
				m.Lag = fleet.LagPending
			}
			roll = append(roll, m)
		}
		how := rules(time.Minute)
		how.Elsewhere = seed%2 == 0
		c := census.Take(nil, slices.Clone(roll), newest, how)
		for position := uint64(1); position <= newest; position++ {
			var seen []fleet.Member
			behind, unseen := 0, 0
			for _, m := range roll {
				switch {
				case !m.Behind(position):
					continue
				case how.Elsewhere && !m.Connected:
					unseen++
				default:
					seen = append(seen, m)
				}
				behind++
			}
			slices.SortStableFunc(seen, func(a, b fleet.Member) int {
				if a.Since.IsZero() != b.Since.IsZero() {
					return cmp.Compare(b.Since.Unix(), a.Since.Unix()) // zero is before all
				}
				return a.Since.Compare(b.Since)
			})
			s := c.At(position)
			if s.Total != len(roll) || s.Behind != behind || s.Unseen != unseen || s.New != 0 {
				t.Fatalf("seed %d, position %d: %+v, want %d behind, %d unseen, of %d", seed, position, s, behind, unseen, len(roll))
			}
			if want := names(seen[:min(len(seen), census.MaxNamed)]); !slices.Equal(names(s.Longest()), want) {
				t.Fatalf("seed %d, position %d: %v, want %v", seed, position, names(s.Longest()), want)
			}
		}
	}
}

func TestACensusIsTheSameWhileNothingOfItDiffers(t *testing.T) {
	roll := []fleet.Member{member(0, 3), member(1, 3)}
	c := census.Take(nil, slices.Clone(roll), 3, rules(time.Minute))
	if again := census.Take(c, slices.Clone(roll), 3, rules(time.Hour)); again != c {
		t.Error("another census of the same proxies")
	}
	for what, next := range map[string]*census.Census{
		"a position more":  census.Take(c, slices.Clone(roll), 4, rules(time.Minute)),
		"a proxy less":     census.Take(c, slices.Clone(roll[:1]), 3, rules(time.Minute)),
		"others elsewhere": census.Take(c, slices.Clone(roll), 3, census.Rules{Now: began, Elsewhere: true}),
	} {
		if next == c {
			t.Errorf("%s, and the same census", what)
		}
	}
}

// Who has answered nothing is new from when it appears until its grace is over, and once only,
// whether or not it connects again and again.
func TestAProxyIsNewOnceAndForATime(t *testing.T) {
	old := member(0, 3)
	c := census.Take(nil, []fleet.Member{old, member(1, 0)}, 3, rules(0))
	if n := c.At(3).New; n != 0 {
		t.Errorf("%d were new before anybody looked", n)
	}
	c = census.Take(c, []fleet.Member{old, member(1, 0), member(2, 0)}, 3, rules(time.Second))
	if n := c.At(3).New; n != 0 {
		t.Errorf("%d were new while proxies come back", n)
	}
	c = census.Take(c, []fleet.Member{old, member(3, 0)}, 3, rules(10*time.Second))
	if s := c.At(3); s.New != 1 || s.Behind != 1 || !c.Grows().Equal(began.Add(40*time.Second)) {
		t.Errorf("it appeared: %+v until %v", s, c.Grows())
	}
	again := member(3, 0)
	again.Connected, again.Since = false, began.Add(30*time.Second)
	c = census.Take(c, []fleet.Member{old, again}, 3, rules(30*time.Second))
	if n := c.At(3).New; n != 1 {
		t.Errorf("it is away: %d new", n)
	}
	grown := census.Take(c, []fleet.Member{old, again}, 3, rules(40*time.Second))
	if n := grown.At(3).New; n != 0 || grown == c || !grown.Grows().IsZero() {
		t.Errorf("its grace is over: %d new", n)
	}
	c = census.Take(grown, []fleet.Member{old, member(3, 0)}, 3, rules(41*time.Second))
	if n := c.At(3).New; n != 0 {
		t.Errorf("it is back, and has not answered since: %d new", n)
	}
	another := member(3, 0)
	another.UID = "another"
	if c = census.Take(c, []fleet.Member{old, another}, 3, rules(42*time.Second)); c.At(3).New != 1 {
		t.Error("another pod of the name is not new")
	}
}

// A fact that is told of those who are named changes the sum, and nothing else does.
func TestTheSumIsOfWhatIsSaid(t *testing.T) {
	late := member(1, 2)
	late.Lag, late.Since = fleet.LagNoAck, began
	take := func(roll ...fleet.Member) census.Standing { return census.Take(nil, roll, 3, rules(time.Minute)).At(3) }
	base := take(member(0, 3), late)
	if base.Sum == 0 || take(member(2, 3), late).Sum != base.Sum {
		t.Error("another sum, because of who is not behind")
	}
	other := late
	other.Reached = 1
	if take(member(0, 3), other).Sum == base.Sum {
		t.Error("the same sum, though it is further behind")
	}
	other = late
	other.Lag, other.Detail = fleet.LagRejected, "x"
	refuses := take(member(0, 3), other)
	other.Detail = "y"
	if refuses.Sum == base.Sum || take(member(0, 3), other).Sum == refuses.Sum {
		t.Error("the same sum, though another refusal is told")
	}
}

func BenchmarkTake(b *testing.B) {
	for _, proxies := range []int{10, 1000} {
		b.Run(fmt.Sprintf("proxies=%d", proxies), func(b *testing.B) {
			roll := make([]fleet.Member, proxies)
			for i := range roll {
				roll[i] = member(i, uint64(1+i))
			}
			for b.Loop() {
				census.Take(nil, roll, uint64(proxies), rules(time.Minute))
			}
		})
	}
}

func BenchmarkAt(b *testing.B) {
	for _, proxies := range []int{10, 1000} {
		b.Run(fmt.Sprintf("proxies=%d", proxies), func(b *testing.B) {
			roll := make([]fleet.Member, proxies)
			for i := range roll {
				roll[i] = member(i, uint64(1+i))
			}
			c := census.Take(nil, roll, uint64(proxies), rules(time.Minute))
			for i := uint64(0); b.Loop(); i++ {
				c.At(1 + i%uint64(proxies))
			}
		})
	}
}
