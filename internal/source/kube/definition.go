package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"aether.io/aether/internal/source"
)

// definitionResource is where definitions are.
const definitionResource = "customresourcedefinitions"

// definitions follows which of our kinds the API server knows: a definition can be
// missing, of another version, come later or go. It implements cache.ReflectorStore.
type definitions struct {
	kinds  map[string][]kind // by the definition's name: one, or one for each namespace
	intake *intake
	start  func(kind)           // begins to follow a kind, or a kind in a namespace
	stop   func(kind)           // ends it; what is known stays
	served map[string]types.UID // definitions whose kind is followed
	stale  map[string]bool      // those whose kind was, and whose objects stay as they were
	listed bool                 // once
}

var _ cache.ReflectorStore = (*definitions)(nil)

func (d *definitions) Add(o any) error { return d.Update(o) }

func (d *definitions) Update(o any) error {
	def, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return fmt.Errorf("%T came where a CustomResourceDefinition was expected", o)
	}
	if len(d.kinds[def.Name]) == 0 {
		return nil
	}
	k := d.kinds[def.Name][0]
	if uid, followed := d.served[def.Name]; followed && uid != def.UID {
		d.gone(k, "was replaced by another") // nobody saw it go
	}
	_, followed := d.served[def.Name]
	switch why := unusable(def, k); {
	case why == "" && !followed:
		d.served[def.Name] = def.UID
		delete(d.stale, def.Name)
		d.intake.fault(about(def.Name), source.Warning, mismatch(def))
		for _, one := range d.kinds[def.Name] {
			d.intake.expect(one.feed())
			d.start(one)
		}
	case why == "":
		d.intake.fault(about(def.Name), source.Warning, mismatch(def))
	default:
		d.gone(k, why)
	}
	return nil
}

func (d *definitions) Delete(o any) error {
	def, ok := o.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return fmt.Errorf("%T came where a CustomResourceDefinition was expected", o)
	}
	if list := d.kinds[def.Name]; len(list) > 0 {
		d.gone(list[0], "is not installed any more")
	}
	return nil
}

// Replace takes in the whole list. After the first it is known which kinds exist.
func (d *definitions) Replace(list []any, _ string) error {
	missing := maps.Clone(d.kinds)
	for _, o := range list {
		if err := d.Update(o); err != nil {
			return err
		}
		if def, ok := o.(*apiextensionsv1.CustomResourceDefinition); ok {
			delete(missing, def.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		d.gone(missing[name][0], "is not installed")
	}
	if !d.listed {
		d.listed = true
		d.intake.complete()
	}
	return nil
}

func (d *definitions) Resync() error { return nil }

// gone stops following a kind. What was known of its objects stays in effect, stale: that
// somebody removes a definition must not take traffic down.
func (d *definitions) gone(k kind, why string) {
	if _, followed := d.served[k.definition()]; followed {
		delete(d.served, k.definition())
		d.stale[k.definition()] = true
		for _, one := range d.kinds[k.definition()] {
			d.stop(one)
		}
	}
	if d.stale[k.definition()] {
		why += "; what was last known of its objects stays in effect"
	}
	for _, one := range d.kinds[k.definition()] {
		d.intake.forget(one.feed())
	}
	d.intake.fault(about(k.definition()), source.Refused, why)
}

func about(definition string) string { return "CustomResourceDefinition/" + definition }

// unusable is why a kind cannot be followed by its definition; empty: it can.
func unusable(def *apiextensionsv1.CustomResourceDefinition, k kind) string {
	if def.DeletionTimestamp != nil {
		return "is being deleted"
	}
	established := slices.ContainsFunc(def.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
		return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
	})
	if !established {
		return "is not established yet"
	}
	var served []string
	for _, v := range def.Spec.Versions {
		if v.Served {
			served = append(served, v.Name)
		}
	}
	if !slices.Contains(served, k.Resource.Version) {
		return fmt.Sprintf("serves versions %s, want %s: another release of it is installed", strings.Join(served, ", "), k.Resource.Version)
	}
	return ""
}

// mismatch is what to say of a definition that can be used, but is of another release of
// the Gateway API than the one whose meaning is implemented; empty: nothing.
func mismatch(def *apiextensionsv1.CustomResourceDefinition) string {
	is := def.Annotations[consts.BundleVersionAnnotation]
	if is == "" || is == consts.BundleVersion {
		return ""
	}
	return fmt.Sprintf("is of Gateway API %s; what is served is what %s means, and fields that one of them lacks are not there", is, consts.BundleVersion)
}

// watchDefinitions follows the definitions until ctx is done.
func (s *Source) watchDefinitions(ctx context.Context, d *definitions) error {
	client, err := s.client(apiextensionsv1.SchemeGroupVersion, false)
	if err != nil {
		return fmt.Errorf("watch definitions: %w", err)
	}
	all := kind{Name: "CustomResourceDefinition", Cluster: true, Resource: apiextensionsv1.SchemeGroupVersion.WithResource(definitionResource)}
	lw := s.listWatch(client, all, func(err error) { s.hear(all, err) })
	return s.reflect(ctx, lw, &apiextensionsv1.CustomResourceDefinition{}, d)
}
