// Package condition makes status conditions. None has a lastTransitionTime: who writes
// statuses has a clock, and knows what was written before.
package condition

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Problem is why something is not as it should be. The zero Problem is none.
type Problem struct{ Reason, Message string }

// IsZero reports whether there is no problem.
func (p Problem) IsZero() bool { return p == Problem{} }

// Problemf is a problem with a formatted message.
func Problemf[R ~string](reason R, format string, args ...any) Problem {
	return Problem{string(reason), fmt.Sprintf(format, args...)}
}

// And is both problems: the reason is the first's, the message tells of each.
func (p Problem) And(o Problem) Problem {
	switch {
	case p.IsZero():
		return o
	case o.IsZero():
		return p
	}
	return Problem{p.Reason, p.Message + "; " + o.Message}
}

// mostTold is the number of problems that one message tells.
const mostTold = 8

// Several is all problems, each once: the reason is the first's, the message tells of the
// first few and counts the rest. None is the zero Problem.
func Several(list []Problem) Problem {
	var told []string
	for _, p := range list {
		if !slices.Contains(told, p.Message) {
			told = append(told, p.Message)
		}
	}
	if len(told) == 0 {
		return Problem{}
	}
	if more := len(told) - mostTold; more > 0 {
		told = append(told[:mostTold], fmt.Sprintf("and %d more", more))
	}
	return Problem{list[0].Reason, strings.Join(told, "; ")}
}

// True is a condition that holds.
func True[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return condition(metav1.ConditionTrue, string(kind), string(reason), message)
}

// False is a condition that does not hold.
func False[T, R ~string](kind T, reason R, message string) metav1.Condition {
	return condition(metav1.ConditionFalse, string(kind), string(reason), message)
}

// Unknown is a condition that only observation can decide.
func Unknown[T, R ~string](kind T, reason R) metav1.Condition {
	return condition(metav1.ConditionUnknown, string(kind), string(reason), "waiting for proxies")
}

// Unless is True with reason good, or False with the problem.
func Unless[T, R ~string](p Problem, kind T, good R, message string) metav1.Condition {
	if p.IsZero() {
		return True(kind, good, message)
	}
	return False(kind, p.Reason, p.Message)
}

// Of gives conditions the generation of the object that they are about.
func Of(generation int64, list ...metav1.Condition) []metav1.Condition {
	for i := range list {
		list[i].ObservedGeneration = generation
	}
	return list
}

func condition(status metav1.ConditionStatus, kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
