package main

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// handed is objects by kind.
type handed map[object.Kind][]object.Object

func (h handed) Objects(kind object.Kind) []object.Object { return h[kind] }

func TestAClassThatIsBeingDeletedSaysWhatItWaitsFor(t *testing.T) {
	at := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	class := func(name, controller string, deleted *metav1.Time) *gatewayv1.GatewayClass {
		return &gatewayv1.GatewayClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: deleted}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)},
		}
	}
	got := deletions(handed{
		object.GatewayClass: {class("goes", controllerName, &at), class("lonely", controllerName, &at), class("stays", controllerName, nil), class("other", "example.com/other", &at)},
		object.Gateway:      {&gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "goes"}}},
	})
	if len(got) != 2 || got[0].Object != "GatewayClass/goes" || !strings.Contains(got[0].Message, "as shop/web") || !got[0].Since.Equal(at.Time) ||
		got[1].Object != "GatewayClass/lonely" || !strings.Contains(got[1].Message, "gone in a moment") {
		t.Errorf("got %+v", got)
	}
}
