package status

import (
	"slices"
	"strings"
	"time"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status/census"
)

// Pods knows which pods run proxies.
type Pods interface {
	// Running returns the pods that run proxies of a scope; known is false while it cannot be said.
	Running(s scope.Scope) (pods []fleet.Pod, known bool)
}

// Some statuses count the proxies that run what they are about: all of them, not those only
// that count for Programmed. Such a status stays open to what happens to proxies, also when
// it is settled. So that answers cost it next to nothing, the proxies of a scope are looked at
// once for all statuses, and of each status only numbers are compared until they differ.

// tally is one scope of which some statuses count the proxies.
type tally struct {
	users    map[object.Key]bool
	names    []resource.Name // whose refusal is a refusal of what is counted
	position uint64          // the newest of its users' marks
	census   *census.Census  // as it was when it was looked at last; nil: not yet
}

// stale reports whether there are marks that its census does not answer for.
func (t *tally) stale() bool { return t.census == nil || t.census.Position() != t.position }

// grown reports whether somebody who was new is so no more.
func (t *tally) grown(now time.Time) bool {
	at := t.grows()
	return !at.IsZero() && !now.Before(at)
}

// grows is when that is; zero: nobody is new.
func (t *tally) grows() time.Time {
	if t.census == nil {
		return time.Time{}
	}
	return t.census.Grows()
}

// mark is where something new of an object came to be in what the proxies of a scope are sent.
type mark struct {
	generation int64
	position   uint64
}

// The most marks that are kept of one object and scope, and how many of the newest are kept
// even if no proxy is between them and the next.
const (
	maxMarks  = 256
	keptMarks = 8
)

// counts reports whether a status counts proxies.
func counts(s routing.Status) bool {
	_, is := s.Value.(*configv1.MeshConfigStatus)
	return is
}

// positions is where what belongs to these statuses is in what proxies are sent. Nothing that
// comes later has been published yet.
func (e *Engine) positions(statuses []routing.Status) map[scope.Scope]uint64 {
	out := map[scope.Scope]uint64{}
	for _, s := range statuses {
		if !counts(s) {
			continue
		}
		for _, r := range s.Live {
			if _, known := out[r.Scope]; !known {
				out[r.Scope] = e.c.Observer.Position(r.Scope)
			}
		}
	}
	return out
}

// note takes in where what is new of an object is. What is in effect in its namespace may be
// new though the object is not. The caller holds mu.
func (e *Engine) note(en *entry, s routing.Status, at map[scope.Scope]uint64) {
	renewed := en.wanted.UID != s.UID || !sameEffect(en.wanted, s)
	before := en.marks
	if en.wanted.UID != s.UID {
		before = nil
	}
	was, live := en.marks, s.Live
	en.marks = nil
	if !counts(s) {
		live = nil
	} else {
		en.marks = make(map[scope.Scope][]mark, len(s.Live))
	}
	for _, r := range live {
		list := before[r.Scope]
		t := e.tallies[r.Scope]
		if t == nil {
			t = &tally{users: map[object.Key]bool{}}
			e.tallies[r.Scope] = t
		}
		switch {
		case s.Refused != "" && len(list) == 0: // nothing of it ever was
			list = []mark{{0, at[r.Scope]}}
		case s.Refused != "":
		case len(list) == 0 || list[len(list)-1].generation != s.Generation || renewed:
			list = thin(append(list, mark{s.Generation, at[r.Scope]}), t.census)
		}
		en.marks[r.Scope] = list
		t.users[s.Key], t.names = true, r.Resources
		t.position = max(t.position, list[len(list)-1].position)
	}
	for in := range was {
		if en.marks[in] == nil {
			e.leave(in, s.Key)
		}
	}
}

// leave says that an object counts a scope's proxies no more. The caller holds mu.
func (e *Engine) leave(s scope.Scope, k object.Key) {
	t := e.tallies[s]
	if t == nil {
		return
	}
	if delete(t.users, k); len(t.users) == 0 {
		delete(e.tallies, s)
	}
}

func sameEffect(a, b routing.Status) bool {
	x, is := a.Value.(*configv1.MeshConfigStatus)
	y, also := b.Value.(*configv1.MeshConfigStatus)
	if !is || !also || x.Effective == nil || y.Effective == nil {
		return false
	}
	return *x.Effective == *y.Effective
}

// thin drops marks that no proxy is at, when there are many: a storm of edits makes one for
// each, and a proxy is at one at most.
func thin(list []mark, proxies *census.Census) []mark {
	if len(list) <= maxMarks {
		return list
	}
	out := make([]mark, 0, len(list))
	for i, m := range list[:len(list)-keptMarks] {
		if proxies != nil && proxies.HasBetween(m.position, list[i+1].position) {
			out = append(out, m)
		}
	}
	out = append(out, list[len(list)-keptMarks:]...)
	return out[max(0, len(out)-maxMarks):]
}

// recount looks at the proxies of each scope that is counted, if they were observed to have
// changed, somebody is new no more, or there are marks that were not asked about.
func (e *Engine) recount() {
	now := e.c.Now()
	e.mu.Lock()
	all := e.recounts
	e.recounts = false
	e.mu.Unlock()
	if all && e.c.Elsewhere != nil {
		elsewhere := e.c.Elsewhere()
		e.mu.Lock()
		e.elsewhere = elsewhere
		e.mu.Unlock()
	}
	var asked []scope.Scope
	e.mu.Lock()
	for s, t := range e.tallies {
		if all || t.stale() || t.grown(now) {
			asked = append(asked, s)
		}
	}
	e.mu.Unlock()
	e.take(asked)
}

// take takes the census of scopes anew, and looks at the numbers of the statuses that what is
// new in it could concern: one that differs in what is urgent is looked at as a whole, one
// that differs in the rest waits for its turn. It is called by Run's goroutine only.
func (e *Engine) take(scopes []scope.Scope) {
	concerned := map[object.Key]bool{}
	for _, s := range scopes {
		e.mu.Lock()
		t := e.tallies[s]
		if t == nil {
			e.mu.Unlock()
			continue
		}
		names, position, before := t.names, t.position, t.census
		rules := census.Rules{Now: e.c.Now(), Grace: e.c.Grace, Settled: e.born.Add(comeback * e.c.Patience), Elsewhere: e.elsewhere}
		e.mu.Unlock()
		now := census.Take(before, e.roll(s, names, position), position, rules)
		e.mu.Lock()
		if e.tallies[s] == t && now != before {
			t.census = now
			for k := range t.users {
				concerned[k] = true
			}
		}
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for k := range concerned {
		en := e.entries[k]
		if !en.looked || e.dirty[k] || e.staleScope(en) != nil {
			continue // it will be looked at, or this will be called again
		}
		switch g := e.glance(k, en); {
		case g == en.glance:
		case g.urgent(en.glance):
			e.dirty[k] = true
		case !en.late: // else it is looked at when it is patient no more
			e.postpone(k, en, g)
		}
	}
}

// staleScope is one whose census does not answer for a status's marks; nil: all do. The caller
// holds mu.
func (e *Engine) staleScope(en *entry) *scope.Scope {
	for s := range en.marks {
		if t := e.tallies[s]; t == nil || t.stale() {
			return &s
		}
	}
	return nil
}

// roll is the proxies of a scope: those whose pods run, and those that are connected. Of one
// that is not, its pod alone says whether it is still there.
func (e *Engine) roll(s scope.Scope, names []resource.Name, position uint64) []fleet.Member {
	members := e.c.Observer.Roll(s, names, position) // sorted
	var pods []fleet.Pod
	known := false
	if e.c.Pods != nil {
		pods, known = e.c.Pods.Running(s)
	}
	byName := make(map[string]fleet.Pod, len(pods))
	for _, p := range pods {
		byName[p.Name] = p
	}
	members = slices.DeleteFunc(members, func(m fleet.Member) bool {
		p, there := byName[m.Name]
		there = there && (p.UID == m.UID || m.UID == "")
		if there && !p.Leaving {
			delete(byName, m.Name)
			return false
		}
		return there || !m.Connected && (known || e.c.Pods == nil)
	})
	connected := len(members)
	for _, p := range pods {
		if _, missing := byName[p.Name]; missing && !p.Leaving {
			since := p.Since
			if since.Before(e.born) { // nothing is known of what was before
				since = e.born
			}
			members = append(members, fleet.Member{Name: p.Name, UID: p.UID, Lag: fleet.LagNotConnected, Since: since})
		}
	}
	if len(members) > connected {
		slices.SortFunc(members, func(a, b fleet.Member) int { return strings.Compare(a.Name, b.Name) })
	}
	return members
}
