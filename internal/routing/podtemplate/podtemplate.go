// Package podtemplate says what of a PodTemplate may become part of a proxy's pod. The type
// has no field for volumes, accounts, host access or privileges; what this package drops
// is what gets those through a name: labels and annotations that others act upon,
// environment that changes which code runs or whom it trusts, resources that are devices.
package podtemplate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	configv1 "aether.io/aether/api/config/v1"
)

// Allow is what of t is allowed, and for people, sorted, what is not. It shares what it
// keeps with t.
func Allow(t configv1.PodTemplate) (kept configv1.PodTemplate, dropped []string) {
	drop := func(field, name, why string) {
		dropped = append(dropped, fmt.Sprintf("podTemplate.%s %s is dropped: %s", field, name, why))
	}
	kept = t
	kept.Labels = allowed(t.Labels, Label, func(name, why string) { drop("labels", name, why) })
	kept.Annotations = allowed(t.Annotations, Annotation, func(name, why string) { drop("annotations", name, why) })
	if c := t.PriorityClassName; c != nil && strings.HasPrefix(*c, systemPriority) {
		kept.PriorityClassName = nil
		drop("priorityClassName", *c, "it is for what a cluster itself is made of")
	}
	if t.Resources != nil {
		kept.Resources = &configv1.PodResources{
			Requests: amounts(t.Resources.Requests, func(name, why string) { drop("resources.requests", name, why) }),
			Limits:   amounts(t.Resources.Limits, func(name, why string) { drop("resources.limits", name, why) }),
		}
	}
	kept.Env = nil
	for _, e := range t.Env {
		if why := Variable(e.Name); why != "" {
			drop("env", e.Name, why)
			continue
		}
		kept.Env = append(kept.Env, e)
	}
	slices.Sort(dropped)
	return kept, dropped
}

// Pairs is those of labels or annotations that why has nothing against.
func Pairs(all map[string]string, why func(name string) string) map[string]string {
	return allowed(all, why, func(string, string) {})
}

func allowed(all map[string]string, why func(string) string, drop func(name, why string)) map[string]string {
	out := maps.Clone(all)
	for name := range all {
		if reason := why(name); reason != "" {
			delete(out, name)
			drop(name, reason)
		}
	}
	return out
}

func amounts(all corev1.ResourceList, drop func(name, why string)) corev1.ResourceList {
	out := maps.Clone(all)
	for name := range all {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		default:
			delete(out, name)
			drop(string(name), "only cpu, memory and ephemeral-storage are not devices")
		}
	}
	return out
}
