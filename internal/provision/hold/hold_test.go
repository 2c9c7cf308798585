package hold

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

func TestAClassIsHeldWhileAGatewayUsesIt(t *testing.T) {
	deleted := &metav1.Time{Time: time.Unix(1, 0)}
	for name, tc := range map[string]struct {
		has     []string
		deleted *metav1.Time
		used    bool
		want    []string // nil: it is left alone
	}{
		"a class that is not used is left alone":    {},
		"one that is used is held":                  {used: true, want: []string{Finalizer}},
		"what others put there stays":               {has: []string{"x"}, used: true, want: []string{"x", Finalizer}},
		"one that is held and used is left alone":   {has: []string{Finalizer}, used: true},
		"one that is not used any more is let go":   {has: []string{Finalizer}, want: []string{}},
		"only what is ours is let go":               {has: []string{Finalizer, "x"}, want: []string{"x"}},
		"one that is deleted is held while used":    {has: []string{Finalizer}, deleted: deleted, used: true},
		"one that is deleted is let go after that":  {has: []string{Finalizer}, deleted: deleted, want: []string{}},
		"the API takes no finalizer of one deleted": {has: []string{"x"}, deleted: deleted, used: true},
	} {
		t.Run(name, func(t *testing.T) {
			class := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: "c", Finalizers: tc.has, DeletionTimestamp: tc.deleted}}
			gateways := map[object.Key]string{{Kind: object.Gateway, Namespace: "n", Name: "other"}: "another"}
			if tc.used {
				gateways[object.Key{Kind: object.Gateway, Namespace: "n", Name: "g"}] = "c"
			}
			edits := decide(map[string]*gatewayv1.GatewayClass{"c": class}, gateways)
			if tc.want == nil {
				if len(edits) > 0 {
					t.Errorf("to be done: %v", edits)
				}
				return
			}
			if hold, there := edits["c"]; !there || hold != tc.used {
				t.Fatalf("to be done: %v", edits)
			}
			got, _ := finalizers(class, tc.used)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestOnlyClassesOfOursAreSeen(t *testing.T) {
	e := &Engine{c: Config{ControllerName: "ours"}, wake: make(chan struct{}, 1), ours: map[string]*gatewayv1.GatewayClass{}, gateways: map[object.Key]string{}}
	class := func(controller gatewayv1.GatewayController) *gatewayv1.GatewayClass {
		return &gatewayv1.GatewayClass{Spec: gatewayv1.GatewayClassSpec{ControllerName: controller}}
	}
	one, two := object.Key{Kind: object.GatewayClass, Name: "one"}, object.Key{Kind: object.GatewayClass, Name: "two"}
	e.Observe([]object.Change{{Key: one, Object: class("ours")}, {Key: two, Object: class("another's")}}, true)
	if len(e.ours) != 1 || e.ours["one"] == nil {
		t.Errorf("seen: %v", e.ours)
	}
	e.Observe([]object.Change{{Key: one}}, true)
	if len(e.ours) != 0 {
		t.Errorf("of what is gone is seen: %v", e.ours)
	}
}
