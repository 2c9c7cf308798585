// Package crds holds the CustomResourceDefinitions of config.aether.io, generated from
// api/config/v1 (make generate), as the chart installs them and as standalone validates with them.
package crds

import "embed"

// FS holds one YAML file a CustomResourceDefinition, at its root.
//
//go:embed *.yaml
var FS embed.FS
