package provision

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
)

// Applying a Service leaves the ports that somebody else has put there.
func TestPortsOfOthersAreTakenOff(t *testing.T) {
	want := coreac.Service("web", "ns").WithSpec(coreac.ServiceSpec().
		WithPorts(coreac.ServicePort().WithPort(80).WithProtocol(corev1.ProtocolTCP), coreac.ServicePort().WithPort(443).WithProtocol(corev1.ProtocolTCP)))
	port := func(number int32, protocol corev1.Protocol) corev1.ServicePort {
		return corev1.ServicePort{Port: number, Protocol: protocol}
	}
	for name, test := range map[string]struct {
		ports []corev1.ServicePort
		want  []operation
	}{
		"none are there": {[]corev1.ServicePort{port(80, "TCP"), port(443, "TCP")}, nil},
		"the last of them goes first, so that the others keep their place": {
			[]corev1.ServicePort{port(22, "TCP"), port(80, "TCP"), port(443, "UDP"), port(443, "TCP")},
			[]operation{{"test", "/metadata/resourceVersion", "7"}, {"remove", "/spec/ports/2", nil}, {"remove", "/spec/ports/0", nil}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			now := &corev1.Service{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "7"}, Spec: corev1.ServiceSpec{Ports: test.ports}}
			if diff := cmp.Diff(test.want, withoutOthersPorts(now, want)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
