package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
)

// Which pod an address is of has metrics by pod count it; what else is said of that is not kept.
func TestAnEndpointKeepsThePodThatItIs(t *testing.T) {
	r := read(t, object.EndpointSlice)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-x", ResourceVersion: "1"},
		Endpoints: []discoveryv1.Endpoint{
			{Addresses: []string{"10.0.0.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "cart-1", UID: "u", ResourceVersion: "7"}},
			{Addresses: []string{"10.0.0.2"}, TargetRef: &corev1.ObjectReference{Kind: "Node", Name: "n"}},
			{Addresses: []string{"10.0.0.3"}},
		},
	}
	if err := r.Replace([]any{slice}, "5"); err != nil {
		t.Fatal(err)
	}
	got := r.changes(t)
	if len(got) != 1 {
		t.Fatalf("a slice gave %+v", got)
	}
	want := []*corev1.ObjectReference{{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, nil, nil}
	for i, e := range got[0].Object.(*discoveryv1.EndpointSlice).Endpoints {
		if diff := cmp.Diff(want[i], e.TargetRef); diff != "" {
			t.Errorf("endpoint %d (-want +got):\n%s", i, diff)
		}
	}
}
