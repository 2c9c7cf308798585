package claim

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	callTimeout = 5 * time.Second // of one request
	pageSize    = 20              // Leases of one answer, each of up to 1.5 MiB if somebody fills it
)

// API is Leases of the Kubernetes API. Its rights: list on Leases in all namespaces, create,
// update and delete in the release's, get on the Deployment, and create on SubjectAccessReviews.
type API struct {
	client     kubernetes.Interface
	deployment string
	owned      atomic.Bool // there was the Deployment
}

var _ Store = (*API)(nil)

// NewAPI checks its arguments and does not call the API. A Lease that it makes goes with the
// Deployment of that name in the Lease's namespace, if there is one.
func NewAPI(config *rest.Config, deployment string) (*API, error) {
	if config == nil || deployment == "" {
		return nil, errors.New("leases of releases need a client configuration and the name of a Deployment")
	}
	own := rest.CopyConfig(config) // its requests wait for no others
	own.Timeout, own.RateLimiter = callTimeout, nil
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of Leases: %w", err)
	}
	return &API{client: client, deployment: deployment}, nil
}

// List implements Store. Without a resourceVersion it is answered from what is stored.
func (a *API) List(ctx context.Context, take func([]coordinationv1.Lease) error) error {
	options := metav1.ListOptions{LabelSelector: Label, Limit: pageSize}
	// Exits: the last page; an error, as ctx is done; take wants no more.
	for {
		page, err := a.client.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, options)
		if err != nil {
			return err
		}
		if err := take(page.Items); err != nil {
			return err
		}
		if options.Continue = page.Continue; options.Continue == "" {
			return nil
		}
	}
}

// Create implements Store. A Lease without a Deployment that goes before it is for processes that
// are of none: while a release is removed its last pods would leave one behind.
func (a *API) Create(ctx context.Context, l *coordinationv1.Lease) error {
	owner, err := a.client.AppsV1().Deployments(l.Namespace).Get(ctx, a.deployment, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && a.owned.Load():
		return fmt.Errorf("its Deployment %s/%s is gone, and it with that", l.Namespace, a.deployment)
	case apierrors.IsNotFound(err): // this process is not of a Deployment; somebody else deletes the Lease, or it ends
	case err != nil:
		return err
	default:
		a.owned.Store(true)
		l.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: owner.Name, UID: owner.UID}}
	}
	_, err = a.client.CoordinationV1().Leases(l.Namespace).Create(ctx, l, metav1.CreateOptions{})
	return err
}

// Update implements Store.
func (a *API) Update(ctx context.Context, l *coordinationv1.Lease) error {
	if len(l.OwnerReferences) > 0 {
		a.owned.Store(true)
	}
	_, err := a.client.CoordinationV1().Leases(l.Namespace).Update(ctx, l, metav1.UpdateOptions{})
	return err
}

// Delete implements Store.
func (a *API) Delete(ctx context.Context, l *coordinationv1.Lease) error {
	return a.client.CoordinationV1().Leases(l.Namespace).Delete(ctx, l.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &l.UID, ResourceVersion: &l.ResourceVersion},
	})
}

// Able reports whether a service account of a namespace has a right.
func (a *API) Able(ctx context.Context, namespace, account string, right Right) (bool, error) {
	asked := authorizationv1.ResourceAttributes{Verb: "create", Group: "authentication.k8s.io", Resource: "tokenreviews"}
	switch {
	case right.Class != "":
		asked = authorizationv1.ResourceAttributes{
			Verb: "update", Group: gatewayv1.GroupName, Resource: "gatewayclasses", Subresource: "status", Name: right.Class,
		}
	case right.Namespace == everywhere:
		asked = authorizationv1.ResourceAttributes{Verb: "list", Group: gatewayv1.GroupName, Resource: "gateways"}
	case right.Namespace != "":
		asked = authorizationv1.ResourceAttributes{Verb: "list", Group: gatewayv1.GroupName, Resource: "gateways", Namespace: right.Namespace}
	}
	review, err := a.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:" + namespace + ":" + account,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			ResourceAttributes: &asked,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask what %s/%s may do: %w", namespace, account, err)
	}
	return review.Status.Allowed, nil
}
