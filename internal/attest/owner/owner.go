// Package owner answers whether a pod is one of those that run a dedicated Gateway's
// proxies: whether it is controlled by a ReplicaSet that is controlled by the Deployment
// that we made for that Gateway. It proves no identity (package review does) and decides
// no right.
package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/svid"
)

const callTimeout = 5 * time.Second

// Gateway is whose proxies are asked for.
type Gateway struct {
	key.Name
	Class string
	UID   types.UID
}

// Checker asks the API. It keeps nothing and is safe for concurrent use.
type Checker struct{ client metadata.Interface }

// New makes a Checker. Its rights: get on pods, ReplicaSets and Deployments.
func New(config *rest.Config) (*Checker, error) {
	if config == nil {
		return nil, errors.New("a checker of owners needs a client configuration")
	}
	one := rest.CopyConfig(config)
	one.Timeout = callTimeout
	client, err := metadata.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of metadata: %w", err)
	}
	return &Checker{client: client}, nil
}

// Check returns nil if the workload's pod is one of the Gateway's own proxies, and
// svid.ErrNotAllowed if it is not; other errors say that it cannot be known now. Names are
// not enough: each owner is the very object that is referred to, by its UID.
func (c *Checker) Check(ctx context.Context, w svid.Workload, gw Gateway) error {
	pod, err := c.get(ctx, corev1.SchemeGroupVersion.WithResource("pods"), w.Namespace, w.Pod.Name, types.UID(w.Pod.UID))
	if err != nil {
		return err
	}
	set, err := c.controller(ctx, pod, "ReplicaSet", "replicasets")
	if err != nil {
		return err
	}
	deployment, err := c.controller(ctx, set, "Deployment", "deployments")
	if err != nil {
		return err
	}
	switch of := metav1.GetControllerOf(deployment); {
	case deployment.Name != front.DeploymentName(gw.Name, gw.Class) || !front.Ours(deployment, gw.Name):
		return refused("Deployment %s is not that of Gateway %s", deployment.Name, gw.Name)
	case of == nil || of.Kind != "Gateway" || group(of.APIVersion) != gatewayv1.GroupName || of.UID != gw.UID:
		return refused("Deployment %s is not controlled by Gateway %s as it is now", deployment.Name, gw.Name)
	}
	return nil
}

// controller is what controls an object, which must be an apps/v1 object of that kind.
func (c *Checker) controller(ctx context.Context, o *metav1.PartialObjectMetadata, kind, resource string) (*metav1.PartialObjectMetadata, error) {
	ref := metav1.GetControllerOf(o)
	if ref == nil || ref.Kind != kind || group(ref.APIVersion) != appsv1.GroupName {
		return nil, refused("%s is controlled by no %s", o.Name, kind)
	}
	return c.get(ctx, appsv1.SchemeGroupVersion.WithResource(resource), o.Namespace, ref.Name, ref.UID)
}

// get is an object if it is the one with that UID.
func (c *Checker) get(ctx context.Context, resource schema.GroupVersionResource, namespace, name string, uid types.UID) (*metav1.PartialObjectMetadata, error) {
	o, err := c.client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, refused("%s %s/%s does not exist", resource.Resource, namespace, name)
	case err != nil:
		return nil, fmt.Errorf("look at %s %s/%s: %w", resource.Resource, namespace, name, err)
	case uid == "" || o.UID != uid:
		return nil, refused("%s %s/%s is another one", resource.Resource, namespace, name)
	}
	return o, nil
}

func group(apiVersion string) string {
	gv, err := schema.ParseGroupVersion(apiVersion)
	if err != nil {
		return ""
	}
	return gv.Group
}

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", svid.ErrNotAllowed, fmt.Sprintf(format, args...))
}
