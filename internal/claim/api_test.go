package claim

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// A release is removed: first its Deployment goes, then its Lease with that, then its last pod.
func TestALeaseIsNotMadeAgainOnceItsDeploymentIsGone(t *testing.T) {
	owner := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "aether-controller", UID: "1"}}
	fresh := func() *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "aether-release-1"}}
	}
	for name, makes := range map[string]bool{"it made the Lease": true, "it renewed what one before it made": false} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(owner.DeepCopy())
			first := &API{client: client, deployment: owner.Name}
			if err := first.Create(t.Context(), fresh()); err != nil {
				t.Fatal(err)
			}
			leases := client.CoordinationV1().Leases("team-a")
			made, err := leases.Get(t.Context(), fresh().Name, metav1.GetOptions{})
			if err != nil || len(made.OwnerReferences) != 1 || made.OwnerReferences[0].UID != owner.UID {
				t.Fatalf("%v, %v", made, err)
			}
			api := first
			if !makes {
				api = &API{client: client, deployment: owner.Name}
				if err := api.Update(t.Context(), made); err != nil {
					t.Fatal(err)
				}
			}
			if err := client.AppsV1().Deployments("team-a").Delete(t.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			if err := api.Delete(t.Context(), made); err != nil {
				t.Fatal(err)
			}
			if err := api.Create(t.Context(), fresh()); err == nil || !strings.Contains(err.Error(), "Deployment team-a/aether-controller is gone") {
				t.Errorf("%v", err)
			}
			if _, err := leases.Get(t.Context(), fresh().Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("there is one: %v", err)
			}
		})
	}
}
