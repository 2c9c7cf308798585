package crd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	"aether.io/aether/internal/crd/screen"
)

// version is one served version of one kind, compiled.
type version struct {
	hasStatus bool           // the status is a subresource: not written with the object
	usesOld   bool           // some rule compares with the version before
	screen    *screen.Screen // passes what is plainly good; nil: none
	// library prunes, defaults, validates and explains. It is what counts; it is compiled
	// when the first object comes that the screen does not pass.
	library func() (*library, error)
}

// library is a version as the API server's own code has it.
type library struct {
	schema *structural.Structural
	values values
	rules  *cel.Validator // nil if the schema has no rule
}

func compile(props *apiextensions.JSONSchemaProps, hasStatus bool) (*version, error) {
	s, err := structural.NewStructural(props)
	if err != nil {
		return nil, fmt.Errorf("make the schema structural: %w", err)
	}
	if err := defaulting.PruneDefaults(s); err != nil {
		return nil, fmt.Errorf("prune the schema's defaults: %w", err)
	}
	v := &version{
		hasStatus: hasStatus, usesOld: usesOld(s),
		library: sync.OnceValues(func() (*library, error) { return compileLibrary(props, s) }),
	}
	if !v.usesOld {
		if v.screen, err = screen.New(s); err != nil {
			return nil, fmt.Errorf("make a screen: %w", err)
		}
	}
	return v, nil
}

func compileLibrary(props *apiextensions.JSONSchemaProps, s *structural.Structural) (*library, error) {
	// Not validation.NewSchemaValidator: that one compares with the old object to forgive
	// old mistakes (ratcheting), which costs time and is not wanted here.
	openAPI := &spec.Schema{}
	if err := validation.ConvertJSONSchemaPropsWithPostProcess(props, openAPI, validation.StripUnsupportedFormatsPostProcess); err != nil {
		return nil, fmt.Errorf("make the schema's validator: %w", err)
	}
	// Embedded means that type and metadata, which the schema does not list, are not
	// pruned. Set once here, pruning does not copy the schema for each object.
	root := *s
	root.XEmbeddedResource = true
	return &library{
		schema: &root,
		values: values{validate.NewSchemaValidator(openAPI, nil, "", strfmt.Default)},
		rules:  cel.NewValidator(s, true, celconfig.PerCallLimit),
	}, nil
}

// values gives a schema's validator the signature that ValidateCustomResource wants.
type values struct{ schema *validate.SchemaValidator }

func (v values) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return v.schema.Validate(value)
}

// Admit prunes u, applies defaults to it and validates it, as creation or, if old is not
// nil, as the update of old, which must have been admitted at the same version. It changes
// u in place, also when it refuses it. A status is dropped where it is a subresource.
//
// It returns the paths of the fields that were unknown and pruned, sorted, and what is
// wrong. Metadata is neither pruned nor validated.
func (v *Validator) Admit(ctx context.Context, u, old *unstructured.Unstructured) (unknown []string, errs field.ErrorList) {
	ver, err := v.version(u)
	if err != nil {
		return nil, field.ErrorList{err}
	}
	if ver.hasStatus {
		delete(u.Object, "status")
	}
	if ver.screen != nil && ver.screen.Pass(u.Object) {
		return nil, nil
	}
	lib, wrong := ver.library()
	if wrong != nil {
		return nil, field.ErrorList{notCompiled(u.GroupVersionKind(), wrong)}
	}
	return lib.admit(ctx, u.Object, old)
}

func (l *library) admit(ctx context.Context, obj map[string]any, old *unstructured.Unstructured) (unknown []string, errs field.ErrorList) {
	unknown = pruning.PruneWithOptions(obj, l.schema, false, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(obj, l.schema)
	defaulting.Default(obj, l.schema)

	errs = validation.ValidateCustomResource(nil, obj, l.values)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, l.schema, obj)...)
	if l.rules != nil && !blocksRules(errs) {
		var before any
		if old != nil {
			before = old.Object
		}
		broken, _ := l.rules.Validate(ctx, nil, l.schema, obj, before, celconfig.RuntimeCELCostBudget)
		errs = append(errs, broken...)
	}
	slices.SortStableFunc(errs, compareErrors)
	return unknown, errs
}

// UsesOld reports whether a rule of u's version compares an object with the one that it
// replaces, that is, whether Admit makes use of old.
func (v *Validator) UsesOld(u *unstructured.Unstructured) bool {
	ver, err := v.version(u)
	return err == nil && ver.usesOld
}

func (v *Validator) version(u *unstructured.Unstructured) (*version, *field.Error) {
	gvk := u.GroupVersionKind()
	lazy, ok := v.versions[gvk]
	if !ok {
		path := field.NewPath("apiVersion")
		if served := v.served[gvk.GroupKind()]; served != nil {
			return nil, field.NotSupported(path, u.GetAPIVersion(), withGroup(gvk.Group, served))
		}
		return nil, field.Invalid(path, u.GetAPIVersion(), "has no kind "+gvk.Kind)
	}
	ver, err := lazy()
	if err != nil {
		return nil, notCompiled(gvk, err)
	}
	return ver, nil
}

func notCompiled(gvk schema.GroupVersionKind, err error) *field.Error {
	return field.InternalError(nil, fmt.Errorf("compile the rules of %s: %w", gvk, err))
}

func withGroup(group string, versions []string) []string {
	out := make([]string, len(versions))
	for i, v := range versions {
		out[i] = group + "/" + v
	}
	return out
}

// blocksRules reports whether an error makes CEL rules meaningless: they are written for
// objects of the right types and sizes. The list is the API server's.
func blocksRules(errs field.ErrorList) bool {
	return slices.ContainsFunc(errs, func(e *field.Error) bool {
		switch e.Type { //nolint:exhaustive // the rest does not block
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong,
			field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
		return false
	})
}

// compareErrors orders by path, then text: the validators range over maps.
func compareErrors(a, b *field.Error) int {
	return cmp.Or(cmp.Compare(a.Field, b.Field), cmp.Compare(a.ErrorBody(), b.ErrorBody()))
}

// usesOld reports whether some rule of s, or below, mentions oldSelf. It may say so of a
// rule that does not (in a string, say), never the other way round.
func usesOld(s *structural.Structural) bool {
	found := false
	visitor := structural.Visitor{
		Structural: func(s *structural.Structural) bool {
			found = found || mentionsOld(s.XValidations)
			return false
		},
		NestedValueValidation: func(n *structural.NestedValueValidation) bool {
			found = found || mentionsOld(n.ValidationExtensions.XValidations)
			return false
		},
	}
	visitor.Visit(s)
	return found
}

func mentionsOld(rules apiextensionsv1.ValidationRules) bool {
	return slices.ContainsFunc(rules, func(r apiextensionsv1.ValidationRule) bool {
		return strings.Contains(r.Rule, "oldSelf")
	})
}
