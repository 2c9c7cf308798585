package balancer

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// service is one of type LoadBalancer that was made so many seconds after the first.
func service(name string, age int, has, wants string) corev1.Service {
	s := corev1.Service{}
	s.Name, s.CreationTimestamp = name, metav1.NewTime(time.Unix(int64(age), 0))
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.LoadBalancerIP = wants
	if has != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: has}}
	}
	return s
}

func TestServicesGetAddresses(t *testing.T) {
	class := "somebody.else/balancer"
	foreign := service("foreign", 1, "", "")
	foreign.Spec.LoadBalancerClass = &class
	was := service("was", 1, "192.0.2.1", "")
	was.Spec.Type = corev1.ServiceTypeClusterIP
	for name, test := range map[string]struct {
		services []corev1.Service
		want     map[string]string
	}{
		"each the lowest that is free": {
			[]corev1.Service{service("b", 2, "", ""), service("a", 1, "", ""), service("c", 0, "192.0.2.1", "")},
			map[string]string{"a": "192.0.2.2", "b": "192.0.2.3"},
		},
		"the older keeps an address that two have": {
			[]corev1.Service{service("younger", 2, "192.0.2.1", ""), service("older", 1, "192.0.2.1", "")},
			map[string]string{"younger": "192.0.2.2"},
		},
		"what is asked for, if it is free": {
			[]corev1.Service{service("a", 1, "", "192.0.2.3"), service("b", 2, "", "192.0.2.3"), service("c", 3, "", "198.51.100.1")},
			map[string]string{"a": "192.0.2.3"},
		},
		"what is asked for now, not what was": {
			[]corev1.Service{service("a", 1, "192.0.2.1", "192.0.2.2")},
			map[string]string{"a": "192.0.2.2"},
		},
		"an address outside of the pool is replaced": {
			[]corev1.Service{service("a", 1, "198.51.100.1", "")},
			map[string]string{"a": "192.0.2.1"},
		},
		"those of another class and of another type get none": {
			[]corev1.Service{foreign, was},
			map[string]string{"was": ""},
		},
		"when there are no more, the youngest waits": {
			[]corev1.Service{service("a", 1, "", ""), service("b", 2, "", ""), service("c", 3, "", ""), service("d", 4, "", "")},
			map[string]string{"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3"},
		},
		"nothing to do": {[]corev1.Service{service("a", 1, "192.0.2.1", "")}, map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]string{}
			for _, s := range assign(test.services, netip.MustParsePrefix("192.0.2.0/30")) {
				got[s.Name] = ""
				for _, i := range s.Status.LoadBalancer.Ingress {
					got[s.Name] = i.IP
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
