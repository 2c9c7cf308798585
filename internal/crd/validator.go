// Package crd admits custom resources as a Kubernetes API server would: it prunes unknown
// fields, applies the schema's defaults, and validates against schema and CEL rules.
// The CustomResourceDefinitions are embedded: the Gateway API's (copied from its module by
// go generate, not committed) and Aether's own (charts/crds). An unstructured object goes
// in and is changed in place; what is unknown and what is wrong come out with field paths.
//
// It does no metadata (names, labels), no conversion between versions, no ratcheting and
// no core types.
package crd

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"aether.io/aether/charts/crds"
)

//go:generate go run ./fetch -dir gateway-api

//go:embed gateway-api
var gatewayAPI embed.FS

// ErrMissing means that the binary, or the test, was built before go generate.
var ErrMissing = errors.New("the Gateway API's CustomResourceDefinitions are not embedded: run \"make generate\" and build again")

// Validator admits objects of the embedded CustomResourceDefinitions. It is safe for
// concurrent use. A version's rules are compiled when its first object comes.
type Validator struct {
	versions map[schema.GroupVersionKind]func() (*version, error)
	served   map[schema.GroupKind][]string
}

// New reads the embedded CustomResourceDefinitions. ErrMissing if the Gateway API's are
// not among them.
func New() (*Validator, error) {
	v := &Validator{
		versions: map[schema.GroupVersionKind]func() (*version, error){},
		served:   map[schema.GroupKind][]string{},
	}
	if err := v.addAll(gatewayAPI, "gateway-api"); err != nil {
		return nil, err
	}
	if len(v.versions) == 0 {
		return nil, ErrMissing
	}
	if err := v.addAll(crds.FS, crds.Dir); err != nil {
		return nil, err
	}
	return v, nil
}

// Own reads our own CustomResourceDefinitions alone.
func Own() (*Validator, error) {
	v := &Validator{
		versions: map[schema.GroupVersionKind]func() (*version, error){},
		served:   map[schema.GroupKind][]string{},
	}
	if err := v.addAll(crds.FS, crds.Dir); err != nil {
		return nil, err
	}
	return v, nil
}

// Served lists the versions of a kind that an API server would serve, sorted; nil if the
// kind is not among the embedded ones.
func (v *Validator) Served(gk schema.GroupKind) []string { return v.served[gk] }

func (v *Validator) addAll(files fs.FS, dir string) error {
	names, err := fs.Glob(files, path.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range names {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := v.add(data); err != nil {
			return fmt.Errorf("read embedded CRD %s: %w", name, err)
		}
	}
	return nil
}

func (v *Validator) add(data []byte) error {
	var external apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &external); err != nil {
		return err
	}
	var in apiextensions.CustomResourceDefinition
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&external, &in, nil); err != nil {
		return err
	}
	gk := schema.GroupKind{Group: in.Spec.Group, Kind: in.Spec.Names.Kind}
	for _, ver := range in.Spec.Versions {
		if !ver.Served {
			continue
		}
		// The conversion moves a schema that all versions share to the top.
		props, sub := in.Spec.Validation, in.Spec.Subresources
		if ver.Schema != nil {
			props = ver.Schema
		}
		if ver.Subresources != nil {
			sub = ver.Subresources
		}
		if props == nil || props.OpenAPIV3Schema == nil {
			return fmt.Errorf("version %s has no schema", ver.Name)
		}
		hasStatus := sub != nil && sub.Status != nil
		v.versions[gk.WithVersion(ver.Name)] = sync.OnceValues(func() (*version, error) {
			return compile(props.OpenAPIV3Schema, hasStatus)
		})
		v.served[gk] = append(v.served[gk], ver.Name)
	}
	slices.Sort(v.served[gk])
	return nil
}
