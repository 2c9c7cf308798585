package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
)

// Our own objects are read one by one. Their definitions may be of another version, or may
// have been weakened, so that one of them has a text where a number is meant: read as a list
// of typed objects, it would keep all others of its kind from being read.

// addOwn registers our kinds as what they are in JSON.
func addOwn(s *runtime.Scheme) error {
	gv := configv1.GroupVersion()
	for _, k := range []string{configv1.KindMeshConfig, configv1.KindGatewayParameters} {
		s.AddKnownTypeWithName(gv.WithKind(k), &unstructured.Unstructured{})
		s.AddKnownTypeWithName(gv.WithKind(k+"List"), &unstructured.UnstructuredList{})
	}
	metav1.AddToGroupVersion(s, gv)
	return nil
}

// decoder makes typed objects of what came. why is what is wrong with one, with the path of
// each field; the object has nothing but its metadata then.
type decoder interface {
	decode(u *unstructured.Unstructured) (o object.Object, why string)
}

// meshConfigs reads MeshConfigs: what is not known is left out.
type meshConfigs struct{}

func (meshConfigs) decode(u *unstructured.Unstructured) (object.Object, string) {
	text, err := u.MarshalJSON()
	if err != nil {
		return &configv1.MeshConfig{ObjectMeta: outline(u)}, oneLine(err)
	}
	c, err := configv1.DecodeMeshConfig(text)
	if c == nil {
		return &configv1.MeshConfig{ObjectMeta: outline(u)}, "metadata: " + oneLine(err)
	}
	c.TypeMeta = metav1.TypeMeta{}
	if err != nil {
		return c, oneLine(err)
	}
	return c, ""
}

// parameters reads GatewayParameters by our definition, whatever the API server has: fields
// that are not known are left out, known ones of a wrong type or value are errors.
type parameters struct{ crds *crd.Validator }

func (p parameters) decode(u *unstructured.Unstructured) (object.Object, string) {
	o := &configv1.GatewayParameters{}
	if err := metadata(u, &o.ObjectMeta); err != nil {
		return o, err.Error()
	}
	admitted := u.DeepCopy()
	admitted.SetGroupVersionKind(configv1.GroupVersion().WithKind(configv1.KindGatewayParameters))
	delete(admitted.Object, "metadata")
	admitted.SetNamespace(o.Namespace)
	admitted.SetName(o.Name)
	_, errs := p.crds.Admit(context.Background(), admitted, nil)
	if len(errs) > 0 {
		return o, explain(errs)
	}
	out := &configv1.GatewayParameters{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(admitted.Object, out); err != nil {
		return o, err.Error()
	}
	out.ObjectMeta = o.ObjectMeta
	return out, ""
}

// metadata reads an object's metadata. An API server has read them before, so they are good.
func metadata(u *unstructured.Unstructured, into *metav1.ObjectMeta) error {
	if err := convert(u.Object["metadata"], into); err != nil {
		*into = outline(u)
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// outline is what of metadata that cannot be read says which object it is.
func outline(u *unstructured.Unstructured) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: u.GetNamespace(), Name: u.GetName(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion(), Generation: u.GetGeneration()}
}

func convert(from, into any) error {
	m, is := from.(map[string]any)
	if !is {
		return errors.New("want an object")
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(m, into)
}

// maxErrors is how many of an object's errors are told.
const maxErrors = 8

func explain(errs field.ErrorList) string {
	told := make([]string, 0, maxErrors+1)
	for i, e := range errs {
		if i == maxErrors {
			told = append(told, fmt.Sprintf("and %d more", len(errs)-maxErrors))
			break
		}
		told = append(told, e.Error())
	}
	return strings.Join(told, "; ")
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }
