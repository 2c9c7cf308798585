package event

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The limits. A reason that comes in floods takes nothing from the others.
const (
	// pause is between two writes of one line: what is recorded meanwhile is counted.
	pause = time.Minute
	// perPause is how many writes of one reason there are in any such time.
	perPause = 60
	// perReason is how many lines of one reason are kept; more are dropped and counted.
	perReason = 256
	// forget is how long a line is kept after it was recorded last. Then it would be an Event
	// of its own.
	forget = 10 * time.Minute
)

// line is everything that is recorded of one object with the same words.
type line struct {
	Event
	name   string    // of what was written; empty: nothing was
	count  int       // since the first
	told   int       // of them, what was written says
	first  time.Time // and last are when they were recorded
	last   time.Time
	tried  time.Time // when it was written last, or that was tried
	inHand bool      // it is being written
}

// key is what makes a line one.
type key struct {
	regarding          corev1.ObjectReference
	kind, reason, note string
}

func (l *line) key() key { return key{l.Regarding, l.Type, l.Reason, l.Note} }

// book is what there is to write, and when. It has no clock.
type book struct {
	lines  map[key]*line
	of     map[string]int         // lines by reason
	writes map[string][]time.Time // the newest perPause, by reason, oldest first
}

func newBook() *book {
	return &book{lines: map[key]*line{}, of: map[string]int{}, writes: map[string][]time.Time{}}
}

// record takes an event in; false: it is dropped.
func (b *book) record(e Event, now time.Time) bool {
	k := (&line{Event: e}).key()
	l := b.lines[k]
	if l == nil {
		if b.of[e.Reason] >= perReason && !b.sweep(e.Reason, now) {
			return false
		}
		l = &line{Event: e, first: now}
		b.lines[k] = l
		b.of[e.Reason]++
	}
	l.count += max(e.Count, 1)
	l.last = now
	return true
}

// sweep forgets what of a reason is told and may be: the pause between two writes of it is
// over. It reports whether there was anything.
func (b *book) sweep(reason string, now time.Time) bool {
	before := b.of[reason]
	for _, l := range b.lines {
		if l.Reason == reason && l.told == l.count && !l.inHand && now.Sub(l.tried) >= pause {
			b.remove(l)
		}
	}
	return b.of[reason] < before
}

func (b *book) remove(l *line) {
	delete(b.lines, l.key())
	if b.of[l.Reason]--; b.of[l.Reason] == 0 {
		delete(b.of, l.Reason)
	}
}

// due is the lines to write now, the oldest first, and when to look again; zero: when
// something is recorded. Each is in hand until done is called.
func (b *book) due(now time.Time) (out []*line, again time.Time) {
	later := func(t time.Time) {
		if again.IsZero() || t.Before(again) {
			again = t
		}
	}
	var waiting []*line
	for _, l := range b.lines {
		switch {
		case l.inHand:
		case l.told == l.count:
			if now.Sub(l.last) >= forget {
				b.remove(l)
			} else {
				later(l.last.Add(forget))
			}
		case !l.tried.IsZero() && now.Sub(l.tried) < pause:
			later(l.tried.Add(pause))
		default:
			waiting = append(waiting, l)
		}
	}
	slices.SortFunc(waiting, func(x, y *line) int { return cmp.Or(x.first.Compare(y.first), cmp.Compare(x.Note, y.Note)) })
	for _, l := range waiting {
		writes := slices.DeleteFunc(b.writes[l.Reason], func(t time.Time) bool { return now.Sub(t) >= pause })
		if len(writes) >= perPause {
			b.writes[l.Reason] = writes
			later(writes[0].Add(pause))
			continue
		}
		b.writes[l.Reason] = append(writes, now)
		l.tried, l.inHand = now, true
		out = append(out, l)
	}
	return out, again
}

// done says what became of a line in hand: under which name it is written, saying so many.
// With an empty name it is not.
func (b *book) done(l *line, name string, told int) {
	l.inHand = false
	if name != "" {
		l.name, l.told = name, told
	}
}
