package changelog

import (
	"fmt"
	"strings"
	"time"
)

// State is what became of a batch.
type State string

// The states of an entry.
const (
	Live        State = "live"        // every connected proxy concerned runs it
	Refused     State = "refused"     // Envoy refuses a resource, and what it had before stays
	Quarantined State = "quarantined" // Envoy refuses what objects of the batch make; the rest is live
	NoEffect    State = "no effect"   // no resource changed
	NoProxies   State = "no proxies"  // no proxy was connected within Patience
	Late        State = "late"        // a proxy had not answered within Patience
)

// Entry is one batch.
type Entry struct {
	At          time.Time     `json:"at"`
	Cause       []string      `json:"cause,omitempty"`       // files
	Objects     []string      `json:"objects"`               // Kind/namespace/name, sorted; "-" before one that is gone
	Quarantined []string      `json:"quarantined,omitempty"` // those of Objects that are
	Refused     []string      `json:"refused,omitempty"`     // resources, if State is Refused
	Start       bool          `json:"start,omitempty"`       // it is all that the source has at the controller's start
	Changed     int           `json:"changed"`               // resources sent; at the start, those by which proxies differed
	Removed     int           `json:"removed"`               // resources taken away
	Statuses    int           `json:"statuses"`              // statuses that differ
	Compile     time.Duration `json:"compileNs"`             // until the resources were published
	LiveAfter   time.Duration `json:"liveNs,omitempty"`      // until Envoy had answered, if Live or Quarantined
	State       State         `json:"state"`
	Proxies     int           `json:"proxies"` // how many run it
}

// String is the entry as one line for a person.
func (e Entry) String() string {
	return e.subject() + ": " + e.outcome()
}

func (e Entry) subject() string {
	if e.Start {
		return fmt.Sprintf("%d %s taken up", len(e.Objects), plural(len(e.Objects), "object", "objects"))
	}
	return list(e.Objects)
}

func (e Entry) outcome() string {
	live := fmt.Sprintf("live in %d %s after %s", e.Proxies, plural(e.Proxies, "proxy", "proxies"), round(e.LiveAfter))
	switch e.State {
	case NoEffect:
		return "no resource changes"
	case Live:
		if e.Start && e.Changed == 0 {
			return "nothing differs"
		}
		return e.effect() + ", " + live
	case Quarantined:
		blame := fmt.Sprintf("Envoy refuses %s, quarantined", list(e.Quarantined))
		if len(e.Quarantined) == len(e.Objects) {
			blame = "quarantined, Envoy refuses it"
		}
		if e.Start && e.Changed == 0 {
			return "nothing differs; " + blame
		}
		if len(e.Quarantined) == len(e.Objects) || e.LiveAfter == 0 {
			return blame
		}
		return e.effect() + ", " + live + "; " + blame
	case Refused:
		return e.effect() + ", refused by Envoy: " + list(e.Refused)
	case NoProxies, Late:
	}
	if e.Start {
		return fmt.Sprintf("%s (live in %d)", e.State, e.Proxies)
	}
	return fmt.Sprintf("%s, %s (live in %d)", e.effect(), e.State, e.Proxies)
}

func (e Entry) effect() string {
	verb := "changed"
	if e.Start {
		verb = plural(e.Changed, "differs", "differ")
	}
	s := fmt.Sprintf("%d %s %s", e.Changed, plural(e.Changed, "resource", "resources"), verb)
	if e.Removed > 0 {
		s += fmt.Sprintf(", %d removed", e.Removed)
	}
	return s
}

// list names the first few.
func list(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func round(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(100 * time.Microsecond)
	}
	return d.Round(10 * time.Millisecond)
}
