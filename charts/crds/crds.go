// Package crds holds the CustomResourceDefinitions of config.aether.io, generated from
// api/config/v1 (make generate), as the chart in this folder installs them and as standalone
// validates with them.
package crds

import "embed"

// Dir is where FS has the definitions: a chart's templates, with nothing in them to fill in.
const Dir = "templates"

// FS holds one YAML file a CustomResourceDefinition, in Dir.
//
//go:embed templates/*.yaml
var FS embed.FS
