package screen

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// node compiles a schema. A node of kind nothing stands for what is not known here.
func (p *planner) node(s *schema) (*node, error) {
	n := &node{max: math.MaxInt64, schema: s}
	of := s.structural()
	if !known(of) {
		return n, nil
	}
	var err error
	switch of.Type {
	case "object":
		err = p.object(n, s)
	case "array":
		err = p.array(n, s)
	case "string":
		p.text(n, of.ValueValidation)
	case "integer":
		n.ofInteger(of.ValueValidation)
	case "boolean":
		if of.ValueValidation == nil || of.ValueValidation.Enum == nil {
			n.kind = boolean
		}
	}
	if err != nil || n.kind == nothing {
		return n, err
	}
	if n.rules, err = p.rules(s, false); costly(n.rules) {
		n.kind = nothing
	}
	return n, err
}

// root compiles the schema of a whole resource.
func (p *planner) root(of *structural.Structural) (*node, error) {
	n := &node{max: math.MaxInt64, root: true}
	if meta, ok := of.Properties["metadata"]; of.Type != "object" || !known(of) || ok && !anyObject(&meta) {
		return n, nil
	}
	err := p.object(n, newSchema(of))
	if err != nil || n.kind == nothing || len(of.XValidations) == 0 {
		return n, err
	}
	n.schema = newSchema(model.WithTypeAndObjectMeta(of))
	if n.rules, err = p.rules(n.schema, true); costly(n.rules) {
		n.kind = nothing
	}
	return n, err
}

// anyObject reports whether s takes every object as it is.
func anyObject(s *structural.Structural) bool {
	return s.Type == "object" && known(s) && s.Default.Object == nil && len(s.XValidations) == 0 &&
		len(s.Properties) == 0 && s.AdditionalProperties == nil &&
		(s.ValueValidation == nil || equality.Semantic.DeepEqual(*s.ValueValidation, structural.ValueValidation{}))
}

// known reports whether s itself has nothing that the screen has no code for.
func known(s *structural.Structural) bool {
	if s.XPreserveUnknownFields || s.XEmbeddedResource || s.XIntOrString {
		return false
	}
	v := s.ValueValidation
	return v == nil || len(v.AllOf) == 0 && len(v.AnyOf) == 0 && len(v.OneOf) == 0 && v.Not == nil &&
		!v.ExclusiveMaximum && !v.ExclusiveMinimum && v.MultipleOf == nil && !v.UniqueItems
}

func (p *planner) object(n *node, s *schema) error {
	of := s.structural()
	n.kind, n.fields = object, make(map[string]*node, len(of.Properties))
	if v := of.ValueValidation; v != nil {
		n.bound(v.MinProperties, v.MaxProperties)
		n.required = v.Required
	}
	for _, name := range slices.Sorted(maps.Keys(s.properties)) {
		prop := s.properties[name].(*schema)
		f, err := p.node(prop)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		n.fields[name] = f
		if value := prop.structural().Default.Object; value != nil {
			n.presets = append(n.presets, preset{name, value})
			if d, ok := value.(string); ok && f.kind == text && f.text(d) {
				f.good = &d
			}
		}
	}
	if of.AdditionalProperties == nil {
		return nil
	}
	if s.more == nil || len(n.fields) > 0 {
		n.kind = nothing
		return nil
	}
	var err error
	n.rest, err = p.node(s.more)
	return err
}

func (p *planner) array(n *node, s *schema) error {
	if s.items == nil {
		return nil
	}
	items, err := p.node(s.items)
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	n.kind, n.items = array, items
	of := s.structural()
	if v := of.ValueValidation; v != nil {
		n.bound(v.MinItems, v.MaxItems)
	}
	switch s.XListType() {
	case "", "atomic":
	case "set":
		n.unique = true
		if !items.scalar() {
			n.kind = nothing
		}
	case "map":
		n.keys = of.XListMapKeys
		compound := func(key string) bool { f := items.fields[key]; return f == nil || !f.scalar() }
		if items.kind != object || len(n.keys) == 0 || slices.ContainsFunc(n.keys, compound) {
			n.kind = nothing
		}
	default:
		n.kind = nothing
	}
	return nil
}

func (n *node) scalar() bool { return n.kind == text || n.kind == integer || n.kind == boolean }

func (n *node) bound(least, most *int64) {
	if least != nil {
		n.min = *least
	}
	if most != nil {
		n.max = *most
	}
}

func (p *planner) text(n *node, v *structural.ValueValidation) {
	if v == nil {
		n.kind = text
		return
	}
	n.bound(v.MinLength, v.MaxLength)
	texts, ok := enumerated(v.Enum, func(v any) (string, bool) { s, ok := v.(string); return s, ok })
	if !ok || v.Format != "" && !strfmt.Default.ContainsName(v.Format) {
		return
	}
	n.texts, n.format = texts, v.Format
	if v.Pattern != "" {
		if n.pattern = p.pattern(v.Pattern); n.pattern == nil {
			return
		}
	}
	n.kind = text
}

// pattern compiles a pattern once for all that have it; nil: it does not compile.
func (p *planner) pattern(text string) *regexp.Regexp {
	if known := p.patterns[text]; known != nil {
		return known
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return nil
	}
	p.patterns[text] = compiled
	return compiled
}

func (n *node) ofInteger(v *structural.ValueValidation) {
	n.min = math.MinInt64
	if v == nil {
		n.kind = integer
		return
	}
	switch v.Format {
	case "", "int64":
	case "int32":
		n.min, n.max = math.MinInt32, math.MaxInt32
	default:
		return
	}
	integers, ok := enumerated(v.Enum, asInteger)
	if !ok {
		return
	}
	if v.Minimum != nil {
		least, exact := asInteger(*v.Minimum)
		n.min, ok = max(n.min, least), ok && exact
	}
	if v.Maximum != nil {
		most, exact := asInteger(*v.Maximum)
		n.max, ok = min(n.max, most), ok && exact
	}
	if ok {
		n.kind, n.integers = integer, integers
	}
}

// asInteger converts a number of a schema if nothing is lost.
func asInteger(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case float64:
		return int64(v), v == math.Trunc(v) && math.Abs(v) < 1<<53
	}
	return 0, false
}

// enumerated converts the values of an enumeration, nil if there is none.
func enumerated[T any](enum []structural.JSON, convert func(any) (T, bool)) (list []T, ok bool) {
	for _, e := range enum {
		v, ok := convert(e.Object)
		if !ok {
			return nil, false
		}
		list = append(list, v)
	}
	return list, true
}
