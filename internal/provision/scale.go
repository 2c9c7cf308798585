package provision

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"aether.io/aether/internal/provision/inventory"
	"aether.io/aether/internal/routing/front"
)

// scaleManager has a Deployment's number of replicas between us, who have it no more, and
// the autoscaler, who takes it when it first changes it. A field that nobody has would fall
// back to its default, which is one proxy.
const scaleManager = front.FieldManager + "-scale"

// applyScaled applies a Deployment whose replicas are an autoscaler's. A new one begins
// with as many as it is to have at least.
func (e *Engine) applyScaled(ctx context.Context, k inventory.Key, o *unstructured.Unstructured, exists bool, least int64) (*unstructured.Unstructured, error) {
	replicas, owned := int64(0), true
	if exists {
		now, err := e.objects.Resource(k.Resource).Namespace(k.Namespace).Get(ctx, k.Name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		replicas, _, _ = unstructured.NestedInt64(now.Object, "spec", "replicas")
		owned = ownsReplicas(now)
	} else {
		first := o.DeepCopy()
		replicas = least
		if err := unstructured.SetNestedField(first.Object, replicas, "spec", "replicas"); err != nil {
			return nil, err
		}
		if _, err := e.patch(ctx, k, first, front.FieldManager); err != nil {
			return nil, err
		}
	}
	if owned {
		hand := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(),
			"metadata": map[string]any{"name": k.Name, "namespace": k.Namespace},
			"spec":     map[string]any{"replicas": replicas},
		}}
		if _, err := e.patch(ctx, k, hand, scaleManager); err != nil {
			return nil, err
		}
	}
	return e.patch(ctx, k, o, front.FieldManager)
}

// ownsReplicas reports whether the number of replicas is ours.
func ownsReplicas(o *unstructured.Unstructured) bool {
	for _, f := range o.GetManagedFields() {
		if f.Manager == front.FieldManager && f.FieldsV1 != nil && strings.Contains(f.FieldsV1.GetRawString(), `"f:replicas"`) {
			return true
		}
	}
	return false
}
