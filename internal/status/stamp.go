package status

import (
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stamp gives each condition of next its transition time: the one it had in before if
// its status is the same, else now.
func stamp(next any, before *Document, now time.Time) {
	var old map[string][]metav1.Condition
	if before != nil {
		old = conditions(before.Status)
	}
	at := metav1.NewTime(now.UTC().Truncate(time.Second))
	for path, list := range conditions(next) {
		for i := range list {
			list[i].LastTransitionTime = at
			for _, c := range old[path] {
				if c.Type == list[i].Type && c.Status == list[i].Status {
					list[i].LastTransitionTime = c.LastTransitionTime
				}
			}
		}
	}
}

// same reports whether two documents say the same, times included.
func same(a, b Document) bool {
	return a.Generation == b.Generation && reflect.DeepEqual(a.Status, b.Status)
}
