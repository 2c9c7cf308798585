package main

import (
	"fmt"
	"math"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

func messageSchema(md protoreflect.MessageDescriptor, description string) (map[string]any, error) {
	properties := map[string]any{}
	for i := range md.Fields().Len() {
		field := md.Fields().Get(i)
		schema, err := fieldSchema(field)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field.FullName(), err)
		}
		properties[field.JSONName()] = schema
	}
	out := map[string]any{"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true}
	describe(out, description)
	return out, nil
}

func fieldSchema(field protoreflect.FieldDescriptor) (map[string]any, error) {
	if field.IsList() || field.IsMap() {
		return nil, fmt.Errorf("lists and maps have no schema here yet")
	}
	if field.Message() != nil {
		return messageSchema(field.Message(), comment(field))
	}
	out := map[string]any{}
	describe(out, comment(field))
	switch field.Kind() {
	case protoreflect.BoolKind:
		out["type"] = "boolean"
	case protoreflect.Uint32Kind:
		out["type"], out["format"] = "integer", "int64"
		out["minimum"], out["maximum"] = 0, int64(math.MaxUint32)
	case protoreflect.Int32Kind:
		out["type"], out["format"] = "integer", "int32"
	case protoreflect.DoubleKind:
		out["type"], out["format"] = "number", "double"
	case protoreflect.StringKind, protoreflect.EnumKind: // a newer name of an enum value must pass
		out["type"] = "string"
	default:
		return nil, fmt.Errorf("a %s has no schema here yet", field.Kind())
	}
	return out, addRules(out, field)
}

// addRules translates the field's buf.validate rules.
func addRules(out map[string]any, field protoreflect.FieldDescriptor) error {
	rules, err := rulesOf(field)
	if err != nil || rules == nil {
		return err
	}
	var bad error
	rules.ProtoReflect().Range(func(kind protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if kind.Message() == nil || kind.IsList() {
			bad = fmt.Errorf("rule %s has no schema", kind.Name())
			return false
		}
		v.Message().Range(func(rule protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			bad = addRule(out, rule.Name(), v.Interface())
			return bad == nil
		})
		return bad == nil
	})
	return bad
}

func addRule(out map[string]any, rule protoreflect.Name, value any) error {
	switch rule {
	case "lt":
		out["maximum"], out["exclusiveMaximum"] = value, true
	case "lte":
		out["maximum"] = value
	case "gt":
		out["minimum"], out["exclusiveMinimum"] = value, true
	case "gte":
		out["minimum"] = value
	case "finite": // JSON has no other numbers
	case "min_len":
		out["minLength"] = value
	case "max_len":
		out["maxLength"] = value
	case "pattern":
		out["pattern"] = value
	default:
		return fmt.Errorf("rule %s has no schema", rule)
	}
	return nil
}

func rulesOf(field protoreflect.FieldDescriptor) (*validate.FieldRules, error) {
	// The compiler may hold the extension in a form of its own; its bytes are the same.
	data, err := proto.Marshal(field.Options())
	if err != nil {
		return nil, err
	}
	options := &descriptorpb.FieldOptions{}
	if err := proto.Unmarshal(data, options); err != nil {
		return nil, err
	}
	if !proto.HasExtension(options, validate.E_Field) {
		return nil, nil //nolint:nilnil // no rules is no error
	}
	rules, ok := proto.GetExtension(options, validate.E_Field).(*validate.FieldRules)
	if !ok {
		return nil, fmt.Errorf("buf.validate.field is no FieldRules")
	}
	return rules, nil
}

func comment(d protoreflect.Descriptor) string {
	text := d.ParentFile().SourceLocations().ByDescriptor(d).LeadingComments
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}

func describe(schema map[string]any, description string) {
	if description != "" {
		schema["description"] = description
	}
}
