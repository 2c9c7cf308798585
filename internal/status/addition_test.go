package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/status"
)

var meshKey = object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "default"}

func unreached(uid types.UID, generation int64) routing.Status {
	return routing.Status{Key: meshKey, UID: uid, Generation: generation, Value: &configv1.MeshConfigStatus{ObservedGeneration: generation}}
}

func projected(uid types.UID, generation int64, s metav1.ConditionStatus) status.Addition {
	return status.Addition{UID: uid, Generation: generation, Condition: metav1.Condition{Type: "Projected", Status: s, Reason: "Any", Message: "m"}}
}

func TestOthersAddConditions(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		said := func() (metav1.Condition, bool) {
			t.Helper()
			for _, c := range e.last(t).Status.(*configv1.MeshConfigStatus).Conditions {
				if c.Type == "Projected" {
					return c, true
				}
			}
			return metav1.Condition{}, false
		}
		want := func(when string, s metav1.ConditionStatus, generation int64) metav1.Condition {
			t.Helper()
			c, there := said()
			if !there || c.Status != s || c.ObservedGeneration != generation || c.LastTransitionTime.IsZero() {
				t.Errorf("%s: %v %+v", when, there, c)
			}
			return c
		}
		engine.Add(meshKey, projected("u", 1, metav1.ConditionTrue))
		lull()
		if len(e.written) != 0 {
			t.Fatalf("written before the object is known: %v", e.written)
		}
		engine.Update([]routing.Status{unreached("u", 1)})
		lull()
		first := want("added before the object was known", metav1.ConditionTrue, 1)

		written := len(e.written)
		engine.Add(meshKey, projected("u", 1, metav1.ConditionTrue))
		pass(time.Minute)
		lull()
		if len(e.written) != written {
			t.Error("written though nothing changed")
		}

		pass(time.Minute)
		engine.Update([]routing.Status{unreached("u", 2)})
		lull()
		want("the object is newer", metav1.ConditionTrue, 1)
		engine.Add(meshKey, projected("u", 2, metav1.ConditionTrue))
		lull()
		if c := want("added of the newer", metav1.ConditionTrue, 2); c.LastTransitionTime != first.LastTransitionTime {
			t.Errorf("the status did not change, and its time did: %v, %v", first.LastTransitionTime, c.LastTransitionTime)
		}
		engine.Add(meshKey, projected("u", 2, metav1.ConditionFalse))
		lull()
		if c := want("it failed", metav1.ConditionFalse, 2); !c.LastTransitionTime.After(first.LastTransitionTime.Time) {
			t.Errorf("the status changed, and its time did not: %v", c.LastTransitionTime)
		}

		pass(time.Minute)
		engine.Update([]routing.Status{unreached("another", 1)})
		lull()
		if c, there := said(); there {
			t.Errorf("another object of the name says %+v", c)
		}
		engine.Add(meshKey, projected("another", 1, metav1.ConditionTrue))
		lull()
		want("added of another object", metav1.ConditionTrue, 1)

		pass(time.Minute)
		engine.Update([]routing.Status{{Key: meshKey}})
		lull()
		engine.Withdraw(meshKey, "Projected")
		engine.Update([]routing.Status{unreached("another", 1)})
		lull()
		if c, there := said(); there {
			t.Errorf("withdrawn, and said: %+v", c)
		}
	})
}

func TestAConditionMayHaveToBeAbsent(t *testing.T) {
	play(t, func(t *testing.T, e *edge, engine *status.Engine) {
		engine.Update([]routing.Status{unreached("u", 1)})
		engine.Add(meshKey, projected("u", 1, metav1.ConditionTrue))
		lull()
		if d := e.last(t); len(d.Absent) != 0 || len(d.Status.(*configv1.MeshConfigStatus).Conditions) != 2 {
			t.Errorf("%+v", d)
		}
		gone := projected("u", 1, "")
		gone.Absent = true
		engine.Add(meshKey, gone)
		pass(time.Minute)
		lull()
		if d := e.last(t); len(d.Absent) != 1 || d.Absent[0] != "Projected" || len(d.Status.(*configv1.MeshConfigStatus).Conditions) != 1 {
			t.Errorf("%+v", d)
		}
		written := len(e.written)
		engine.Add(meshKey, gone)
		pass(time.Minute)
		lull()
		if len(e.written) != written {
			t.Error("written though nothing changed")
		}
	})
}
