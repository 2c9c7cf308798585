package screen

import (
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiserver/pkg/cel/common"
)

// schema is model.Structural with its parts made once: CEL asks for them at each field
// that a rule reads.
type schema struct {
	model.Structural
	items      *schema
	properties map[string]common.Schema // each a *schema
	more       *schema                  // of fields that it does not name
}

func newSchema(s *structural.Structural) *schema {
	if s == nil {
		return nil
	}
	out := &schema{Structural: model.Structural{Structural: s}, items: newSchema(s.Items)}
	if s.Properties != nil {
		out.properties = make(map[string]common.Schema, len(s.Properties))
		for name, prop := range s.Properties {
			out.properties[name] = newSchema(&prop)
		}
	}
	if s.AdditionalProperties != nil {
		out.more = newSchema(s.AdditionalProperties.Structural)
	}
	return out
}

// structural is what the schema was made from.
func (s *schema) structural() *structural.Structural { return s.Structural.Structural }

// Items implements common.Schema.
func (s *schema) Items() common.Schema {
	if s.items == nil {
		return nil
	}
	return s.items
}

// Properties implements common.Schema.
func (s *schema) Properties() map[string]common.Schema { return s.properties }

// AdditionalProperties implements common.Schema.
func (s *schema) AdditionalProperties() common.SchemaOrBool {
	if s.structural().AdditionalProperties == nil {
		return nil
	}
	return more{s}
}

// more is what the schema says of fields that it does not name.
type more struct{ of *schema }

// Schema implements common.SchemaOrBool.
func (m more) Schema() common.Schema {
	if m.of.more == nil {
		return nil
	}
	return m.of.more
}

// Allows implements common.SchemaOrBool.
func (m more) Allows() bool { return m.of.structural().AdditionalProperties.Bool }
