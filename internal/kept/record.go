package kept

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// record is one object as it is written.
type record struct {
	Object  string          `json:"object"`  // Kind/namespace/name
	Version json.RawMessage `json:"version"` // the last good one
}

// keepable returns an empty object of a kind that is kept; nil for the others: nothing but
// these is ever refused by a source that follows an API.
func keepable(k object.Kind) object.Object {
	switch k { //nolint:exhaustive // the rest is not kept
	case object.Secret:
		return &corev1.Secret{}
	case object.ConfigMap:
		return &corev1.ConfigMap{}
	case object.MeshConfig:
		return &configv1.MeshConfig{}
	case object.GatewayParameters:
		return &configv1.GatewayParameters{}
	}
	return nil
}

// encode writes an object, of its metadata only who it is: nothing else is read.
func encode(k object.Key, o object.Object) (record, error) {
	if keepable(k.Kind) == nil {
		return record{}, fmt.Errorf("keep %s: objects of that kind are not kept", k)
	}
	c := o.DeepCopyObject().(object.Object)
	meta, ok := c.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta)
	if !ok {
		return record{}, fmt.Errorf("keep %s: its metadata are of another kind", k)
	}
	*meta = metav1.ObjectMeta{
		Namespace: meta.Namespace, Name: meta.Name, UID: meta.UID, ResourceVersion: meta.ResourceVersion,
		Generation: meta.Generation, CreationTimestamp: meta.CreationTimestamp,
	}
	text, err := json.Marshal(c)
	if err != nil {
		return record{}, fmt.Errorf("keep %s: %w", k, err)
	}
	return record{Object: k.String(), Version: text}, nil
}

// decode reads what encode wrote.
func (r record) decode() (object.Key, object.Object, error) {
	k, err := object.ParseKey(r.Object)
	if err != nil {
		return k, nil, err
	}
	o := keepable(k.Kind)
	if o == nil {
		return k, nil, fmt.Errorf("%s: objects of that kind are not kept", k)
	}
	if err := json.Unmarshal(r.Version, o); err != nil {
		return k, nil, fmt.Errorf("%s: it does not parse", k) // the error could have a part of a key in it
	}
	if o.GetNamespace() != k.Namespace || o.GetName() != k.Name || o.GetUID() == "" {
		return k, nil, fmt.Errorf("%s: what is kept is another object", k)
	}
	return k, o, nil
}
