package pod

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/podtemplate"
)

const (
	componentLabel = "app.kubernetes.io/component"
	component      = "dedicated-proxy"

	// drainMargin is what a pod has beyond the drain to end in.
	drainMargin = 15 * time.Second
	waitMargin  = 5 * time.Second
)

// Every is the label selector of the pods that are made here, whichever Gateway's.
const Every = componentLabel + "=" + component + "," + front.ManagedByLabel + "=" + front.FieldManager

// Selector is the labels by which a Gateway's own proxies are found. The shared ones, which
// may be in the same namespace, have another component.
func Selector(gw key.Name, class string) map[string]string {
	return map[string]string{
		componentLabel:                     component,
		gatewayv1.GatewayNameLabelKey:      front.Label(gw.Name),
		gatewayv1.GatewayClassNameLabelKey: front.Label(class),
	}
}

// For is the pod of a Gateway's own proxies. Of two that say something of one thing this
// package goes before the template, the template before the Gateway's parameters, those
// before its spec.infrastructure; where a thing can be said once only, the parameters
// replace what the template has.
func (t *Template) For(f front.Front) corev1.PodTemplateSpec {
	out := *t.template.DeepCopy()
	selector := Selector(f.Gateway, f.Class)
	own := maps.Clone(selector)
	own[front.ManagedByLabel] = front.FieldManager
	in := f.Proxies.Pod
	out.Labels = first(own, out.Labels, podtemplate.Pairs(in.Labels, podtemplate.Label), podtemplate.Pairs(f.Labels, podtemplate.Label))
	out.Annotations = first(
		map[string]string{front.OfAnnotation: f.Gateway.String()}, out.Annotations,
		podtemplate.Pairs(in.Annotations, podtemplate.Annotation), podtemplate.Pairs(f.Annotations, podtemplate.Annotation),
	)
	out.Spec.ServiceAccountName = front.Account(f.Gateway, f.Class)
	out.Spec.DeprecatedServiceAccount = ""
	place(&out.Spec, in, selector)
	proxy, envoy := named(out.Spec.InitContainers, proxyContainer), named(out.Spec.Containers, envoyContainer)
	if r := in.Resources; r != nil {
		envoy.Resources = corev1.ResourceRequirements{Requests: maps.Clone(r.Requests), Limits: maps.Clone(r.Limits)}
	}
	for _, c := range []*corev1.Container{proxy, envoy} {
		c.Env = append(c.Env, additional(c.Env, in)...)
	}
	for i, arg := range proxy.Args {
		if arg == sharedScope {
			proxy.Args[i] = scopeFlag + f.Gateway.String()
		}
	}
	t.drain(&out.Spec, proxy, envoy, time.Duration(f.Proxies.DrainSeconds)*time.Second)
	return out
}

// place says where the pods are to run. What the template says of its own pods is said of
// these.
func place(spec *corev1.PodSpec, in configv1.PodTemplate, selector map[string]string) {
	these := &metav1.LabelSelector{MatchLabels: selector}
	for i := range spec.TopologySpreadConstraints {
		spec.TopologySpreadConstraints[i].LabelSelector = these
	}
	if a := spec.Affinity; a != nil && in.Affinity == nil {
		for _, terms := range [][]corev1.PodAffinityTerm{required(a.PodAffinity), requiredAnti(a.PodAntiAffinity)} {
			for i := range terms {
				terms[i].LabelSelector = these
			}
		}
		for _, terms := range [][]corev1.WeightedPodAffinityTerm{preferred(a.PodAffinity), preferredAnti(a.PodAntiAffinity)} {
			for i := range terms {
				terms[i].PodAffinityTerm.LabelSelector = these
			}
		}
	}
	if in.NodeSelector != nil {
		spec.NodeSelector = maps.Clone(in.NodeSelector)
	}
	if in.Tolerations != nil {
		spec.Tolerations = slices.Clone(in.Tolerations)
	}
	if in.Affinity != nil {
		spec.Affinity = in.Affinity.DeepCopy()
	}
	if in.TopologySpreadConstraints != nil {
		spec.TopologySpreadConstraints = nil
		for _, c := range in.TopologySpreadConstraints {
			c = *c.DeepCopy()
			if c.LabelSelector == nil {
				c.LabelSelector = these
			}
			spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, c)
		}
	}
	if len(spec.TopologySpreadConstraints) == 0 { // neither has anything to say
		spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: these,
		}}
	}
	if in.PriorityClassName != nil {
		spec.PriorityClassName, spec.Priority = *in.PriorityClassName, nil
	}
}

func required(a *corev1.PodAffinity) []corev1.PodAffinityTerm {
	if a == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution
}

func requiredAnti(a *corev1.PodAntiAffinity) []corev1.PodAffinityTerm {
	if a == nil {
		return nil
	}
	return a.RequiredDuringSchedulingIgnoredDuringExecution
}

func preferred(a *corev1.PodAffinity) []corev1.WeightedPodAffinityTerm {
	if a == nil {
		return nil
	}
	return a.PreferredDuringSchedulingIgnoredDuringExecution
}

func preferredAnti(a *corev1.PodAntiAffinity) []corev1.WeightedPodAffinityTerm {
	if a == nil {
		return nil
	}
	return a.PreferredDuringSchedulingIgnoredDuringExecution
}

// additional is the environment that the template does not have already.
func additional(has []corev1.EnvVar, in configv1.PodTemplate) []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range in.Env {
		if !slices.ContainsFunc(has, func(h corev1.EnvVar) bool { return h.Name == e.Name }) {
			// A reference in a value could only be to the environment of this container.
			out = append(out, corev1.EnvVar{Name: e.Name, Value: strings.ReplaceAll(e.Value, "$(", "$$(")})
		}
	}
	return out
}

// drain gives connections that long to end once the drain has begun: the proxy, which counts
// the delay before it too, who waits for it, Envoy, and the kubelet that kills what is left.
func (t *Template) drain(spec *corev1.PodSpec, proxy, envoy *corev1.Container, long time.Duration) {
	long = max(long, time.Second)
	whole := t.delay + long
	proxy.Args = set(proxy.Args, drainTimeoutFlag, whole.String(), true)
	for _, c := range []*corev1.Container{proxy, envoy} {
		if l := c.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Exec != nil {
			l.PreStop.Exec.Command = set(l.PreStop.Exec.Command, waitFlag, (whole + waitMargin).String(), false)
		}
	}
	seconds := strconv.Itoa(int(long / time.Second))
	if !setPair(envoy.Command, envoyDrainFlag, seconds) && !setPair(envoy.Args, envoyDrainFlag, seconds) {
		envoy.Args = append(envoy.Args, envoyDrainFlag, seconds)
	}
	spec.TerminationGracePeriodSeconds = new(int64((whole + drainMargin + time.Second - 1) / time.Second))
}

// set replaces the value of a flag, which it ends in =, in all its places; one that is not
// there is added if so wanted.
func set(list []string, flag, value string, add bool) []string {
	for i, arg := range list {
		if strings.HasPrefix(arg, flag) {
			list[i] = flag + value
			add = false
		}
	}
	if add {
		list = append(list, flag+value)
	}
	return list
}

// setPair replaces the value of a flag that is given as two words or as one, and reports
// whether it is there.
func setPair(list []string, flag, value string) bool {
	for i, arg := range list {
		switch {
		case arg == flag && i+1 < len(list):
			list[i+1] = value
			return true
		case strings.HasPrefix(arg, flag+"="):
			list[i] = fmt.Sprintf("%s=%s", flag, value)
			return true
		}
	}
	return false
}

// first merges maps; of several values for one name the first stays.
func first(list ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range slices.Backward(list) {
		maps.Copy(out, m)
	}
	return out
}
