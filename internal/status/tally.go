package status

import (
	"slices"
	"strings"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

// Pods knows which pods run proxies.
type Pods interface {
	// Running returns the pods that run proxies of a scope; known is false while it cannot be said.
	Running(s scope.Scope) (pods []fleet.Pod, known bool)
}

// Some statuses count the proxies that run what they are about: all of them, not those only
// that count for Programmed. Such a status stays open to what happens to proxies, also when
// it is settled. So that answers about anything else cost it nothing, what is observed of
// each scope is compared with what was observed before, once for all statuses.

// tally is one scope of which some statuses count the proxies.
type tally struct {
	users    map[object.Key]bool
	names    []resource.Name // whose refusal is a refusal of what is counted
	position uint64          // the newest of its users' marks
	roll     []fleet.Member  // as it was when it was looked at last
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
			list = thin(append(list, mark{s.Generation, at[r.Scope]}), t.roll)
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
func thin(list []mark, roll []fleet.Member) []mark {
	if len(list) <= maxMarks {
		return list
	}
	out := make([]mark, 0, len(list))
	for i, m := range list[:len(list)-keptMarks] {
		if slices.ContainsFunc(roll, func(p fleet.Member) bool { return m.position <= p.Reached && p.Reached < list[i+1].position }) {
			out = append(out, m)
		}
	}
	out = append(out, list[len(list)-keptMarks:]...)
	return out[max(0, len(out)-maxMarks):]
}

// recount looks at the proxies of each scope that is counted, if they were observed to have
// changed, and has the statuses looked at that this could concern.
func (e *Engine) recount() {
	type ask struct {
		names    []resource.Name
		position uint64
	}
	e.mu.Lock()
	if !e.recounts {
		e.mu.Unlock()
		return
	}
	e.recounts = false
	asks := make(map[scope.Scope]ask, len(e.tallies))
	for s, t := range e.tallies {
		asks[s] = ask{t.names, t.position}
	}
	e.mu.Unlock()
	rolls := make(map[scope.Scope][]fleet.Member, len(asks))
	for s, a := range asks {
		rolls[s] = e.roll(s, a.names, a.position)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for s, now := range rolls {
		t := e.tallies[s]
		if t == nil || slices.Equal(t.roll, now) {
			continue
		}
		same := slices.EqualFunc(t.roll, now, func(a, b fleet.Member) bool { return a.Name == b.Name })
		reached := min(least(t.roll), least(now))
		t.roll = now
		for k := range t.users {
			list := e.entries[k].marks[s]
			if !same || list[len(list)-1].position > reached {
				e.dirty[k] = true
			}
		}
	}
}

// least is the position that every proxy has reached; 0 if one refuses what is counted, or
// has not got it ready.
func least(roll []fleet.Member) uint64 {
	reached := ^uint64(0)
	for _, m := range roll {
		if m.Behind(0) {
			return 0
		}
		reached = min(reached, m.Reached)
	}
	return reached
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
