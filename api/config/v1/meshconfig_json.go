package configv1

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// meshConfigJSON is a MeshConfig as bytes: all but the spec is encoding/json's business.
type meshConfigJSON struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata,omitzero"`
	Spec            json.RawMessage   `json:"spec,omitempty"`
	Status          json.RawMessage   `json:"status,omitempty"`
}

// MarshalJSON writes the spec with its presence: nil is no spec, empty is {}, and an
// explicit 0 or false is written. The bytes of one object are always the same.
func (c MeshConfig) MarshalJSON() ([]byte, error) {
	out := meshConfigJSON{TypeMeta: c.TypeMeta, Metadata: c.ObjectMeta}
	if c.Spec != nil {
		spec, err := protojson.Marshal(c.Spec)
		if err != nil {
			return nil, fmt.Errorf("encode spec: %w", err)
		}
		out.Spec = spec // encoding/json compacts it, which removes protojson's random spaces
	}
	if !reflect.ValueOf(c.Status).IsZero() {
		status, err := json.Marshal(c.Status)
		if err != nil {
			return nil, fmt.Errorf("encode status: %w", err)
		}
		out.Status = status
	}
	return json.Marshal(out)
}

// UnmarshalJSON is DecodeMeshConfig; on an error c stays as it was.
func (c *MeshConfig) UnmarshalJSON(data []byte) error {
	next, err := DecodeMeshConfig(data)
	if err != nil {
		return err
	}
	*c = *next
	return nil
}

// DecodeMeshConfig reads an object, leaves the spec's unknown fields out and lists them in
// UnknownFields. A known field of the wrong type is a *FieldError, with which there is
// everything but the spec; with any other error there is nothing. A status that cannot be read is
// none: its definition takes whatever is written there, which is no reason to refuse an object.
func DecodeMeshConfig(data []byte) (*MeshConfig, error) {
	var in meshConfigJSON
	// In the letter case of the API: another one is another field, which an API server drops.
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &in); err != nil {
		return nil, err
	}
	c := &MeshConfig{TypeMeta: in.TypeMeta, ObjectMeta: in.Metadata}
	if len(in.Status) > 0 && kjson.UnmarshalCaseSensitivePreserveInts(in.Status, &c.Status) != nil {
		c.Status = MeshConfigStatus{}
	}
	if len(in.Spec) == 0 || string(in.Spec) == "null" {
		return c, nil
	}
	var err error
	c.Spec, c.UnknownFields, err = DecodeSpec(in.Spec)
	return c, err
}

// DeepCopyInto copies c into out, sharing nothing.
func (c *MeshConfig) DeepCopyInto(out *MeshConfig) {
	*out = MeshConfig{TypeMeta: c.TypeMeta, UnknownFields: slices.Clone(c.UnknownFields)}
	c.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	if c.Spec != nil {
		out.Spec = proto.CloneOf(c.Spec)
	}
	c.Status.DeepCopyInto(&out.Status)
}

// DeepCopy copies c, sharing nothing.
func (c *MeshConfig) DeepCopy() *MeshConfig {
	if c == nil {
		return nil
	}
	out := new(MeshConfig)
	c.DeepCopyInto(out)
	return out
}

// DeepCopyObject is DeepCopy as a runtime.Object needs it.
func (c *MeshConfig) DeepCopyObject() runtime.Object {
	if c == nil {
		return nil
	}
	return c.DeepCopy()
}
