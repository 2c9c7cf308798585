package status_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/status"
)

// A Gateway says what it lacks, unless there is a reason in itself, and says it no more when
// it has it.
func TestWhatAGatewayLacksIsInItsStatus(t *testing.T) {
	lack := map[object.Key]condition.Problem{gatewayKey: {Reason: "NoResources", Message: "every port is taken"}}
	with := func(reason gatewayv1.GatewayConditionReason) routing.Status {
		s := gatewayStatus("web")
		s.Value.(*gatewayv1.GatewayStatus).Conditions = []metav1.Condition{{Type: "Programmed", Status: metav1.ConditionFalse, Reason: string(reason), Message: "own", ObservedGeneration: 1}}
		return s
	}
	for name, tt := range map[string]struct {
		status        routing.Status
		reason, says  string
		afterwards    string
		programmedYet metav1.ConditionStatus
	}{
		"one without an address":      {with(gatewayv1.GatewayReasonAddressNotAssigned), "NoResources", "every port is taken", "AddressNotAssigned", metav1.ConditionFalse},
		"one with a reason in itself": {with(gatewayv1.GatewayReasonInvalid), "Invalid", "own", "Invalid", metav1.ConditionFalse},
		"one that is served":          {gatewayStatus("web"), "Programmed", "every valid listener is live in every proxy that counts; but every port is taken", "Programmed", metav1.ConditionTrue},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, e *edge, engine *status.Engine) {
				engine.Update([]routing.Status{tt.status})
				engine.Lack(lack)
				pass(time.Minute)
				c := programmed(t, e.last(t).Status.(*gatewayv1.GatewayStatus).Conditions)
				if c.Reason != tt.reason || c.Message != tt.says || c.Status != tt.programmedYet {
					t.Errorf("Programmed is %+v", c)
				}
				engine.Lack(nil)
				pass(time.Minute)
				if c := programmed(t, e.last(t).Status.(*gatewayv1.GatewayStatus).Conditions); c.Reason != tt.afterwards {
					t.Errorf("afterwards Programmed is %+v", c)
				}
			})
		})
	}
}
