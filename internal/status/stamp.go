package status

import (
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// maxMessage is the most characters that a condition's message may have: maxLength in the
// definition of metav1.Condition.
const maxMessage = 32768

// shortened is a message that every API server takes: valid UTF-8 of at most maxMessage
// characters. What is cut off is said.
func shortened(s string) string {
	s = strings.ToValidUTF8(s, "�")
	if len(s) <= maxMessage || utf8.RuneCountInString(s) <= maxMessage { // no more characters than bytes
		return s
	}
	const end = " … (cut off)"
	left := maxMessage - utf8.RuneCountInString(end)
	for at := range s {
		if left == 0 {
			return s[:at] + end
		}
		left--
	}
	return s
}

// stamp makes the messages of next fit to be written, and gives each condition its
// transition time: the one it had in the first of before in which its status is the same, else
// now. What was written comes before what was seen since: what went and came back before it was
// told is no transition.
func stamp(next any, now time.Time, before ...*Document) {
	var old []map[string][]metav1.Condition
	for _, d := range before {
		if d != nil {
			old = append(old, conditions(d.Status))
		}
	}
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	for path, list := range conditions(next) {
		for i := range list {
			list[i].LastTransitionTime = at
			list[i].Message = shortened(list[i].Message)
			for _, was := range old {
				if c := meta.FindStatusCondition(was[path], list[i].Type); c != nil && c.Status == list[i].Status {
					list[i].LastTransitionTime = c.LastTransitionTime
					break
				}
			}
		}
	}
}

// same reports whether two documents say the same of the same object, times included.
func same(a, b Document) bool {
	return a.UID == b.UID && a.Generation == b.Generation && slices.Equal(a.Absent, b.Absent) && reflect.DeepEqual(a.Status, b.Status)
}
