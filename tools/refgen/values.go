package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	chartValues = "charts/aether/values.yaml"
	chartSchema = "charts/aether/values.schema.json"
)

const valuesHead = `# Values of chart aether

<!-- Made by "make generate" from charts/aether/values.yaml. -->

What can be set when Aether is [installed](../guides/install.md). A value that is not here, or is of
another type, is refused with its path.

| Value | Default | |
|---|---|---|
`

// valueSchema is what is read of the schema of values.
type valueSchema struct {
	Ref        string                     `json:"$ref"`
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]json.RawMessage `json:"$defs"`
}

// values is the page of the chart's values: what values.yaml says of each.
func values() (string, error) {
	text, err := os.ReadFile(chartValues)
	if err != nil {
		return "", err
	}
	schemaText, err := os.ReadFile(chartSchema)
	if err != nil {
		return "", err
	}
	page, err := valuesPage(text, schemaText)
	if err != nil {
		return "", fmt.Errorf("%s: %w", chartValues, err)
	}
	return page, nil
}

// valuesPage fails where values and schema do not have the same names, and where a value has no
// comment.
func valuesPage(text, schemaText []byte) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return "", err
	}
	var root valueSchema
	if err := json.Unmarshal(schemaText, &root); err != nil {
		return "", fmt.Errorf("%s: %w", chartSchema, err)
	}
	delete(root.Properties, "global") // Helm's own
	p := valuesWriter{defs: root.Defs}
	p.b.WriteString(valuesHead)
	p.rows("", doc.Content[0], root)
	return p.b.String(), errors.Join(p.errs...)
}

type valuesWriter struct {
	defs map[string]json.RawMessage
	b    strings.Builder
	errs []error
}

// rows writes a row for each value below a mapping, in the order in which they are there. One
// whose own values have comments gets a row for each of those, too.
func (p *valuesWriter) rows(prefix string, mapping *yaml.Node, s valueSchema) {
	missing := maps.Clone(s.Properties)
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		raw, known := s.Properties[key.Value]
		delete(missing, key.Value)
		comment := oneLine(strings.TrimSpace(strings.ReplaceAll("\n"+key.HeadComment, "\n#", "\n")))
		if !known || comment == "" {
			p.errs = append(p.errs, fmt.Errorf("%s has no comment, or is not in the schema", path))
			continue
		}
		below := value.Kind == yaml.MappingNode && len(value.Content) > 0 && value.Content[0].HeadComment != ""
		if !below {
			text, err := inline(value)
			p.errs = append(p.errs, err)
			fmt.Fprintf(&p.b, "| `%s` | `%s` | %s |\n", path, text, cell(comment))
			continue
		}
		fmt.Fprintf(&p.b, "| `%s` | | %s |\n", path, cell(comment))
		p.rows(path+".", value, p.resolve(raw))
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		p.errs = append(p.errs, fmt.Errorf("the schema has %s%s, which has no value", prefix, name))
	}
}

// resolve follows a schema's reference.
func (p *valuesWriter) resolve(raw json.RawMessage) (s valueSchema) {
	if err := json.Unmarshal(raw, &s); err != nil {
		p.errs = append(p.errs, err)
	}
	if name, isRef := strings.CutPrefix(s.Ref, "#/$defs/"); isRef {
		return p.resolve(p.defs[name])
	}
	return s
}

// inline is a value on one line.
func inline(value *yaml.Node) (string, error) {
	var decoded any
	if err := value.Decode(&decoded); err != nil {
		return "", err
	}
	if s, isText := decoded.(string); isText && s != "" {
		return s, nil
	}
	out, err := json.Marshal(decoded)
	return string(out), err
}
