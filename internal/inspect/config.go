package inspect

import (
	"encoding/json"

	"aether.io/aether/internal/meshconfig"
)

// Config is the mesh configuration that a controller goes by: enough to work out what is in
// effect in any namespace.
type Config struct {
	ReleaseNamespace string       `json:"releaseNamespace"` // whose MeshConfig every other inherits
	System           System       `json:"system"`
	MeshConfigs      []MeshConfig `json:"meshConfigs"` // sorted by namespace
}

// System is the system config that a MeshConfig may override, named as the chart's values are.
type System struct {
	OTelEnabled     bool    `json:"otelEnabled"`
	OTelEndpoint    string  `json:"otelEndpoint"`
	OTelLogs        bool    `json:"otelLogs"`
	TraceSampleRate float64 `json:"traceSampleRate"`
	TraceExport     bool    `json:"traceExport"`
}

// MeshConfig is one object as it is in effect: of one that is refused, its last good version.
type MeshConfig struct {
	Namespace  string          `json:"namespace"`
	Generation int64           `json:"generation"`
	Spec       json.RawMessage `json:"spec"` // as meshconfig.Parse reads it
}

// SystemOf is s as it is shown.
func SystemOf(s meshconfig.System) System {
	return System{OTelEnabled: s.OTelEnabled, OTelEndpoint: s.OTelEndpoint, OTelLogs: s.OTelLogs, TraceSampleRate: s.TraceSampleRate, TraceExport: s.TraceExport}
}

// Inherited is what is shown as it is used.
func (s System) Inherited() meshconfig.System {
	return meshconfig.System{OTelEnabled: s.OTelEnabled, OTelEndpoint: s.OTelEndpoint, OTelLogs: s.OTelLogs, TraceSampleRate: s.TraceSampleRate, TraceExport: s.TraceExport}
}
