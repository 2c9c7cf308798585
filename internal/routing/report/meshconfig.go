package report

import (
	"fmt"
	"strings"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/routing/condition"
)

// MeshConfig is the status of a MeshConfig with what is in effect in its namespace.
// Whether it is projected and applied is for others to say.
func MeshConfig(o *configv1.MeshConfig, generation int64, e meshconfig.Effective) *configv1.MeshConfigStatus {
	unknown := condition.False(configv1.MeshConfigUnknownFields, configv1.MeshConfigReasonNone, "every field is known")
	if len(o.UnknownFields) > 0 {
		unknown = condition.True(configv1.MeshConfigUnknownFields, configv1.MeshConfigReasonUnknownFields,
			"not known to this version and without effect: "+strings.Join(o.UnknownFields, ", "))
	}
	return &configv1.MeshConfigStatus{
		ObservedGeneration: generation,
		Conditions:         condition.Of(generation, unknown),
		Effective:          e.Status(),
	}
}

// Refused is the status of a MeshConfig that is not in effect as it is written, which the
// reason says with what is in effect instead; o is nil if nothing of it ever was.
func Refused(o *configv1.MeshConfig, generation int64, e meshconfig.Effective, why string) (status *configv1.MeshConfigStatus, reason string) {
	instead := "what it would inherit is in effect"
	if o != nil {
		instead = fmt.Sprintf("generation %d stays in effect", o.Generation)
	}
	return &configv1.MeshConfigStatus{ObservedGeneration: generation, Effective: e.Status()}, fmt.Sprintf("it is not valid, and %s: %s", instead, why)
}
