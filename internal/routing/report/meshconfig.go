package report

import (
	"strings"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/routing/condition"
)

// MeshConfig is the status of a MeshConfig with what is in effect in its namespace.
// Whether it is projected and applied is for others to say.
func MeshConfig(o *configv1.MeshConfig, e meshconfig.Effective) *configv1.MeshConfigStatus {
	unknown := condition.False(configv1.MeshConfigUnknownFields, configv1.MeshConfigReasonNone, "every field is known")
	if len(o.UnknownFields) > 0 {
		unknown = condition.True(configv1.MeshConfigUnknownFields, configv1.MeshConfigReasonUnknownFields,
			"not known to this version and without effect: "+strings.Join(o.UnknownFields, ", "))
	}
	return &configv1.MeshConfigStatus{
		ObservedGeneration: o.Generation,
		Conditions:         condition.Of(o.Generation, unknown),
		Effective:          e.Status(),
	}
}
