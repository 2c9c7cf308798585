package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// schema is what is read of an OpenAPI schema.
type schema struct {
	Description string            `json:"description"`
	Type        string            `json:"type"`
	Format      string            `json:"format"`
	Enum        []string          `json:"enum"`
	Minimum     *float64          `json:"minimum"`
	Maximum     *float64          `json:"maximum"`
	MaxLength   *int64            `json:"maxLength"`
	MaxItems    *int64            `json:"maxItems"`
	Properties  map[string]schema `json:"properties"`
	Items       *schema           `json:"items"`
	Entries     *schema           `json:"additionalProperties"`
	Rules       []struct {
		Message string `json:"message"`
	} `json:"x-kubernetes-validations"`
}

// definition is what is read of a CustomResourceDefinition.
type definition struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct {
				Root schema `json:"openAPIV3Schema"`
			}
		}
	}
}

// Fields of Kubernetes' own types: its documents have them.
var foreign = map[string]string{
	"affinity": "Affinity of a Pod", "tolerations": "list of a Pod's tolerations", "topologySpreadConstraints": "list of a Pod's constraints",
}

const head = `# Configuration

<!-- Made by "make generate" from charts/crds/templates. -->

The fields of Aether's own objects, ` + "`config.aether.io/v1`" + `: none is required. The page is made from the
definitions by which an API server and standalone mode check objects. Which fields do not act
yet is in the [README](../../README.md#what-exists-today). Standalone, the release namespace is
` + "`aether-system`" + `, and system config is flags of the [controller](commands.md#aether-controller).

A Gateway's proxies follow the MeshConfig of the Gateway's namespace.
`

// Files in the order of the page.
var definitions = []string{"charts/crds/templates/config.aether.io_meshconfigs.yaml", "charts/crds/templates/config.aether.io_gatewayparameters.yaml"}

// configuration is the page of fields.
func configuration() (string, error) {
	var b strings.Builder
	b.WriteString(head)
	for _, path := range definitions {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		var d definition
		if err := yaml.Unmarshal(text, &d); err != nil {
			return "", fmt.Errorf("read %s: %w", path, err)
		}
		for _, v := range d.Spec.Versions {
			root := v.Schema.Root
			fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Field of `spec` | Value | |\n|---|---|---|\n", d.Spec.Names.Kind, oneLine(root.Description))
			rows(&b, "", root.Properties["spec"])
		}
	}
	return b.String(), nil
}

// rows writes a row for each field below s, sorted, parents before their fields.
func rows(b *strings.Builder, prefix string, s schema) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field, path := s.Properties[name], prefix+name
		value, below := foreign[name], false
		if value == "" {
			value, below = field.value(), true
		}
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", path, cell(value), cell(field.text()))
		switch {
		case !below:
		case field.Items != nil:
			rows(b, path+"[].", *field.Items)
		default:
			rows(b, path+".", field)
		}
	}
}

// text is the description with the rules that tie fields together.
func (s schema) text() string {
	out := oneLine(s.Description)
	for _, r := range s.Rules {
		if out != "" && !strings.HasSuffix(out, ".") {
			out += "."
		}
		out = strings.TrimSpace(out + " Rule: " + r.Message + ".")
	}
	return out
}

// value is what may be written, with its bounds.
func (s schema) value() string {
	switch {
	case len(s.Enum) > 0:
		return "`" + strings.Join(s.Enum, "`, `") + "`"
	case s.Type == "object" && s.Entries != nil:
		return "map of texts"
	case s.Type == "object":
		return "object"
	case s.Type == "array" && s.Items != nil:
		return "list of " + s.Items.value() + limit(", at most %d", s.MaxItems)
	case s.Type == "string" && s.Format != "":
		return s.Format
	case s.Type == "string":
		return "text" + limit(", at most %d characters", s.MaxLength)
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%s, %s to %s", s.Type, number(*s.Minimum), number(*s.Maximum))
	case s.Minimum != nil:
		return fmt.Sprintf("%s, at least %s", s.Type, number(*s.Minimum))
	case s.Type == "boolean":
		return "`true`, `false`"
	case s.Type == "":
		return "number or text" // an int-or-string, as a quantity is
	}
	return s.Type
}

func number(f float64) string { return fmt.Sprintf("%.10g", f) }

func limit(format string, n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf(format, *n)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// cell is s as it may stand in a table.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
