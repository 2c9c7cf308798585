package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/status/census"
)

// numbers is how many proxies run what a status is about. It is compared as a whole.
type numbers struct {
	total, applied int
	fresh          int    // of those that do not: who has just begun and has time to
	unseen         int    // of those that do not: who may be connected to another controller
	sum            uint64 // of what is said of those who are named
	concerned      bool   // there are scopes that it concerns
	refused        bool   // it is not valid, and what was before goes on everywhere
	refusing       bool   // somebody's Envoy refuses it
}

// add counts the proxies of one scope, as they stand to the newest mark.
func (n *numbers) add(c *census.Census, marks []mark) census.Standing {
	s := c.At(marks[len(marks)-1].position)
	n.total += s.Total
	if n.refused {
		n.sum += c.Firsts()
		return s
	}
	n.applied += s.Total - s.Behind
	n.fresh += s.New
	n.unseen += s.Unseen
	n.sum += s.Sum
	n.refusing = n.refusing || c.Refuses()
	return s
}

// verdict is what the numbers come to, before it is put into words.
func (n *numbers) verdict(held bool) outcome {
	switch {
	case held, n.refusing:
		return outcome{troubled, metav1.ConditionFalse, ReasonRejected, ""}
	case !n.concerned, n.total > 0 && n.applied == n.total:
		return outcome{settled, metav1.ConditionTrue, ReasonApplied, ""}
	case n.applied > 0 && n.applied+n.fresh == n.total:
		return outcome{settled, metav1.ConditionTrue, ReasonApplied, ""}
	case n.unseen > 0 && n.applied+n.fresh+n.unseen == n.total:
		return outcome{awaited, metav1.ConditionUnknown, ReasonPartlySeen, ""}
	}
	return outcome{awaited, metav1.ConditionFalse, ReasonProgressing, ""}
}

// glance is what of a status follows from proxies, without its words: what is compared each
// time that something is new of them. The same glance is the same status.
type glance struct {
	applied numbers
	held    bool
}

// urgent reports whether a status that was glanced at before has another condition now: else
// there are other numbers or names at most, which can wait.
func (g glance) urgent(before glance) bool {
	now, was := g.applied.verdict(g.held), before.applied.verdict(before.held)
	return now.open != was.open || now.status != was.status || now.reason != was.reason
}

// beginning reports whether it differs from what it will soon be only by proxies that began
// just now.
func (g glance) beginning() bool {
	return g.applied.fresh > 0 && g.applied.verdict(g.held).status == metav1.ConditionTrue
}

// glance glances at one object's status. All that it counts has been counted. The caller holds mu.
func (e *Engine) glance(k object.Key, en *entry) glance {
	g := glance{held: en.wanted.Refused != "" || e.held[k] != ""}
	g.applied.begin(en.wanted)
	for s, marks := range en.marks {
		g.applied.add(e.tallies[s].census, marks)
	}
	return g
}

func (n *numbers) begin(wanted routing.Status) {
	n.concerned, n.refused = len(wanted.Live) > 0, wanted.Refused != ""
}

// count is numbers, and who does not run it.
type count struct {
	numbers
	laggards []configv1.MeshConfigLaggard // at most census.MaxNamed, the longest first
	refuses  []string                     // what those say whose Envoy refuses it
}

// count counts for one object's status. All that it counts has been counted. The caller holds mu.
func (e *Engine) count(en *entry) count {
	var c count
	c.begin(en.wanted)
	for s, marks := range en.marks {
		c.name(e.tallies[s].census, marks, en.since)
	}
	c.finish()
	return c
}

// name counts the proxies of one scope and notes who is behind. changed is since when one that
// has not been sent what it is to run is behind.
func (c *count) name(of *census.Census, marks []mark, changed time.Time) {
	standing := c.add(of, marks)
	behind := of.First()
	if !c.refused {
		behind = standing.Longest()
		for _, m := range of.Refusing() {
			c.refuses = append(c.refuses, m.Name+" refused it: "+m.Detail)
		}
	}
	for _, m := range behind {
		l := configv1.MeshConfigLaggard{Name: m.Name, Since: metav1.NewTime(m.Since.UTC().Truncate(time.Second)), Reason: cmp.Or(m.Lag, fleet.LagNoAck)}
		if m.Since.IsZero() || c.refused {
			l.Since = metav1.NewTime(changed.UTC().Truncate(time.Second))
		}
		if c.refused {
			l.Reason = fleet.LagRejected
		}
		if at := running(m, marks); at >= 0 {
			l.Generation = marks[at].generation
		}
		c.laggards = append(c.laggards, l)
	}
}

// running is which mark a proxy is at; -1: none, or not known.
func running(m fleet.Member, marks []mark) int {
	at := len(marks) - 1
	if newest := marks[at].position; m.Behind(newest) && m.Reached >= newest { // refused, or not ready: what was before goes on
		at--
	}
	for at >= 0 && (m.Reached < marks[at].position || m.Reached == 0) {
		at--
	}
	return at
}

// finish orders the laggards and leaves as many as are named, each name once: pods of two
// namespaces may have the same.
func (c *count) finish() {
	slices.SortFunc(c.laggards, func(a, b configv1.MeshConfigLaggard) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Name, b.Name), cmp.Compare(a.Generation, b.Generation))
	})
	named := map[string]bool{}
	c.laggards = slices.DeleteFunc(c.laggards, func(l configv1.MeshConfigLaggard) bool {
		if named[l.Name] || len(named) == census.MaxNamed {
			return true
		}
		named[l.Name] = true
		return false
	})
	slices.Sort(c.refuses)
	c.refuses = c.refuses[:min(len(c.refuses), census.MaxNamed)]
}

// status is what the count is in a MeshConfig's status.
func (c *count) status() *configv1.MeshConfigProxies {
	return &configv1.MeshConfigProxies{Total: int32(c.total), Applied: int32(c.applied), Laggards: c.laggards}
}

// outcome is what is said of it: that all have it, or who has not.
func (c *count) outcome(held string) outcome {
	o := c.verdict(held != "")
	switch {
	case held != "":
		o.message = held
	case o.reason == ReasonRejected:
		o.message = strings.Join(c.refuses, "; ")
	case !c.concerned:
		o.message = "it concerns no proxy: none serves a Gateway of its namespace"
	case c.total == 0:
		o.message = "no proxy that it concerns runs yet"
	case c.applied == c.total:
		o.message = "every proxy that it concerns runs it"
	case o.status == metav1.ConditionTrue:
		o.message = fmt.Sprintf("every proxy that it concerns runs it, but for %d that began just now", c.fresh)
	case o.status == metav1.ConditionUnknown:
		o.message = fmt.Sprintf("%d of %d proxies are known to run it; %s", c.applied, c.total, c.elsewhere())
	default:
		o.message = fmt.Sprintf("%d of %d proxies run it; behind: %s", c.applied, c.total, c.behind())
		if c.unseen > 0 {
			o.message += "; " + c.elsewhere()
		}
	}
	return o
}

func (c *count) elsewhere() string {
	return fmt.Sprintf("%d are not connected to the controller that writes this; there are others, and what is connected to them they do not tell", c.unseen)
}

func (c *count) behind() string {
	told := make([]string, 0, len(c.laggards)+1)
	for _, l := range c.laggards {
		told = append(told, fmt.Sprintf("%s (%s)", l.Name, l.Reason))
	}
	if more := c.total - c.applied - c.unseen - len(c.laggards); more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(told, ", ")
}
