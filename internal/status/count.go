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
)

// maxLaggards is how many are named.
const maxLaggards = 10

// count is how many proxies run what a status is about, and who does not.
type count struct {
	total, applied int
	laggards       []configv1.MeshConfigLaggard // at most maxLaggards, the longest first
	refusing       []string                     // what those say whose Envoy refuses it
	concerned      bool                         // there are scopes that it concerns
	refused        bool                         // it is not valid, and what was before goes on everywhere
}

// add counts the proxies of one scope. changed is since when one that has not been sent what
// it is to run is behind.
func (c *count) add(roll []fleet.Member, marks []mark, changed time.Time) {
	newest := len(marks) - 1
	for _, m := range roll {
		c.total++
		behind := m.Behind(marks[newest].position)
		if !behind && !c.refused {
			c.applied++
			continue
		}
		at := newest
		if behind && m.Reached >= marks[newest].position { // refused, or not ready: what was before goes on
			at--
		}
		for at >= 0 && (m.Reached < marks[at].position || m.Reached == 0) {
			at--
		}
		l := configv1.MeshConfigLaggard{Name: m.Name, Since: metav1.NewTime(m.Since.UTC().Truncate(time.Second)), Reason: cmp.Or(m.Lag, fleet.LagNoAck)}
		if m.Since.IsZero() || c.refused {
			l.Since = metav1.NewTime(changed.UTC().Truncate(time.Second))
		}
		if c.refused {
			l.Reason = fleet.LagRejected
		}
		if at >= 0 {
			l.Generation = marks[at].generation
		}
		if m.Lag == fleet.LagRejected {
			c.refusing = append(c.refusing, m.Name+" refused it: "+m.Detail)
		}
		c.laggards = append(c.laggards, l)
	}
}

// finish orders the laggards and leaves as many as are named, each name once: pods of two
// namespaces may have the same.
func (c *count) finish() {
	slices.SortFunc(c.laggards, func(a, b configv1.MeshConfigLaggard) int {
		return cmp.Or(a.Since.Compare(b.Since.Time), strings.Compare(a.Name, b.Name), cmp.Compare(a.Generation, b.Generation))
	})
	named := map[string]bool{}
	c.laggards = slices.DeleteFunc(c.laggards, func(l configv1.MeshConfigLaggard) bool {
		if named[l.Name] || len(named) == maxLaggards {
			return true
		}
		named[l.Name] = true
		return false
	})
	slices.Sort(c.refusing)
	c.refusing = c.refusing[:min(len(c.refusing), maxLaggards)]
}

// status is what the count is in a MeshConfig's status.
func (c *count) status() *configv1.MeshConfigProxies {
	return &configv1.MeshConfigProxies{Total: int32(c.total), Applied: int32(c.applied), Laggards: c.laggards}
}

// outcome is what is said of it: that all have it, or who has not.
func (c *count) outcome(held string) outcome {
	switch {
	case held != "":
		return outcome{troubled, metav1.ConditionFalse, ReasonRejected, held}
	case len(c.refusing) > 0:
		return outcome{troubled, metav1.ConditionFalse, ReasonRejected, strings.Join(c.refusing, "; ")}
	case !c.concerned:
		return outcome{settled, metav1.ConditionTrue, ReasonApplied, "it concerns no proxy: none serves a Gateway of its namespace"}
	case c.total == 0:
		return outcome{awaited, metav1.ConditionFalse, ReasonProgressing, "no proxy that it concerns runs yet"}
	case c.applied == c.total:
		return outcome{settled, metav1.ConditionTrue, ReasonApplied, "every proxy that it concerns runs it"}
	}
	return outcome{awaited, metav1.ConditionFalse, ReasonProgressing, fmt.Sprintf("%d of %d proxies run it; behind: %s", c.applied, c.total, c.behind())}
}

func (c *count) behind() string {
	told := make([]string, 0, len(c.laggards)+1)
	for _, l := range c.laggards {
		told = append(told, fmt.Sprintf("%s (%s)", l.Name, l.Reason))
	}
	if more := c.total - c.applied - len(c.laggards); more > 0 {
		told = append(told, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(told, ", ")
}

// minor reports whether two documents differ in nothing but how many proxies have come how
// far: no condition has another status, reason or generation.
func minor(a, b Document) bool {
	x, is := a.Status.(*configv1.MeshConfigStatus)
	y, also := b.Status.(*configv1.MeshConfigStatus)
	if !is || !also || a.UID != b.UID || a.Generation != b.Generation || x.ObservedGeneration != y.ObservedGeneration {
		return false
	}
	if x.Effective == nil || y.Effective == nil || *x.Effective != *y.Effective {
		return false
	}
	return slices.EqualFunc(x.Conditions, y.Conditions, func(c, d metav1.Condition) bool {
		return c.Type == d.Type && c.Status == d.Status && c.Reason == d.Reason && c.ObservedGeneration == d.ObservedGeneration
	})
}
