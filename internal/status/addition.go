package status

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/object"
)

// Addition is a condition of an object that somebody else than the graph and the proxies
// decides, such as a MeshConfig's Projected. There is one writer of a status: who decides
// a part of it hands that in.
type Addition struct {
	UID        types.UID // of the object that it is about: another of the name does not get it. Empty: not known
	Generation int64     // of the object that was looked at, which the condition's observedGeneration will be
	// Condition has its type, status, reason and message. When it last changed is the engine's to say.
	Condition metav1.Condition
	// Absent says that there is to be no condition of that type, whoever wrote one before.
	Absent bool
	// Minor says that it is about something that many objects have in common, such as a
	// collector: what is new of it alone waits for its turn, as numbers do, unless it is said of
	// another generation than before.
	Minor bool
}

// Add has an object's status say a, in the place of what was added under that type before.
// It is said with what else is: not before the graph has said something of the object, as
// long as the object is there, and of an older generation until something is added of the
// newer one. What is the same as before is no change.
func (e *Engine) Add(k object.Key, a Addition) {
	a.Condition.ObservedGeneration, a.Condition.LastTransitionTime = a.Generation, metav1.Time{}
	e.mu.Lock()
	of := e.added[k]
	if old, known := of[a.Condition.Type]; known && old == a {
		e.mu.Unlock()
		return
	}
	if of == nil {
		of = map[string]Addition{}
		e.added[k] = of
	}
	of[a.Condition.Type] = a
	if e.entries[k] != nil {
		e.dirty[k] = true
	}
	e.mu.Unlock()
	e.poke()
}

// Withdraw forgets what was added to an object under a type. Who adds to objects withdraws
// it from those that are gone. It is said no more; what is in the API of it stays there, as
// conditions do that nobody of this process has anything to say about.
func (e *Engine) Withdraw(k object.Key, kind string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if delete(e.added[k], kind); len(e.added[k]) == 0 {
		delete(e.added, k)
	}
}

// minors is the types of those that are minor; nil: none.
func minors(added map[string]Addition) map[string]bool {
	var out map[string]bool
	for kind, a := range added {
		if a.Minor {
			if out == nil {
				out = map[string]bool{}
			}
			out[kind] = true
		}
	}
	return out
}

// with adds conditions to a status, in the order of their types, and returns the types of those
// that are to be absent.
func with(status any, uid types.UID, added map[string]Addition) (absent []string) {
	list := ownConditions(status)
	if list == nil {
		return nil
	}
	for _, kind := range slices.Sorted(maps.Keys(added)) {
		a := added[kind]
		switch {
		case a.UID != uid && a.UID != "" && uid != "":
		case a.Absent:
			absent = append(absent, kind)
		default:
			put(list, a.Condition)
		}
	}
	return absent
}
