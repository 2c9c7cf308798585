package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/delivery"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/scope"
)

// tally is what the connected proxies of a scope, or of several, say.
type tally struct {
	arriving int       // proxies whose exports arrive
	silent   int       // proxies that have exported nothing yet
	failing  []failure // of the others, the longest first
}

// failure is a proxy whose exports do not arrive.
type failure struct {
	proxy string
	cause delivery.Cause
	since time.Time
}

// named is how many of those that fail are named.
const named = 3

// count tallies the proxies that are connected, by scope and all of them.
func count(proxies []fleet.Proxy) (by map[scope.Scope]tally, all tally) {
	by = map[scope.Scope]tally{}
	for _, p := range proxies {
		if !p.Connected {
			continue
		}
		t := by[p.Scope]
		i := slices.IndexFunc(p.Status.Checks, func(c fleet.Check) bool { return c.Name == fleet.CheckTelemetry })
		switch {
		case i < 0:
			t.silent++
		case p.Status.Checks[i].State == fleet.CheckFailed:
			c := p.Status.Checks[i]
			t.failing = append(t.failing, failure{p.ID, delivery.CauseOf(c.Reason), c.Since.UTC()})
		default:
			t.arriving++
		}
		by[p.Scope] = t
	}
	for s, t := range by {
		slices.SortFunc(t.failing, failure.compare)
		by[s] = t
		all = all.plus(t)
	}
	return by, all
}

func (f failure) compare(g failure) int {
	return cmp.Or(f.since.Compare(g.since), strings.Compare(f.proxy, g.proxy))
}

func (t tally) plus(u tally) tally {
	out := tally{t.arriving + u.arriving, t.silent + u.silent, t.failing}
	if len(u.failing) > 0 {
		out.failing = slices.Concat(t.failing, u.failing)
		slices.SortFunc(out.failing, failure.compare)
	}
	return out
}

// sum is what the proxies of some scopes say together, and what is made of it.
type sum struct {
	tally
	reason, message string // empty if none fails
}

// sums works out the sum of each set of scopes that is asked for once: thousands of MeshConfigs are
// served in the same.
type sums struct {
	by      map[scope.Scope]tally
	address string
	known   map[string]sum
}

func (s *sums) of(scopes []scope.Scope) sum {
	var name strings.Builder
	for _, in := range scopes {
		name.WriteString(in.String() + " ")
	}
	if known, is := s.known[name.String()]; is {
		return known
	}
	var out sum
	for _, in := range scopes {
		out.tally = out.plus(s.by[in])
	}
	if len(out.failing) > 0 {
		out.reason, out.message = out.tally.reason(), out.tally.message(s.address)
	}
	s.known[name.String()] = out
	return out
}

func (t tally) equal(u tally) bool {
	return t.arriving == u.arriving && t.silent == u.silent && slices.EqualFunc(t.failing, u.failing, func(a, b failure) bool {
		return a.proxy == b.proxy && a.cause == b.cause && a.since.Equal(b.since)
	})
}

// cause is what most say, of several the one that sorts first.
func (t tally) cause() delivery.Cause {
	votes := map[delivery.Cause]int{}
	var most delivery.Cause
	for _, f := range t.failing {
		votes[f.cause]++
	}
	for c, n := range votes {
		if n > votes[most] || n == votes[most] && c.String() < most.String() {
			most = c
		}
	}
	return most
}

func (t tally) reason() string { return t.cause().Reason }

// message tells who fails, and why.
func (t tally) message(address string) string {
	main := t.cause()
	var who []string
	for _, f := range t.failing[:min(len(t.failing), named)] {
		text := f.proxy + " since " + f.since.Format(time.RFC3339)
		if f.cause != main {
			text += ", " + f.cause.Text
		}
		who = append(who, text)
	}
	if more := len(t.failing) - named; more > 0 {
		who = append(who, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("what %d of %d connected proxies send to %s does not arrive: %s (%s); their traffic goes on",
		len(t.failing), len(t.failing)+t.arriving+t.silent, address, main.Text, strings.Join(who, "; "))
}
