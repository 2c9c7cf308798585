// Package pod makes the pod of a dedicated Gateway's proxies out of the template by which
// the shared ones are run, so that both are the same program run in the same way. It
// changes whose pod it is, adds what of the Gateway's parameters is allowed (package
// podtemplate), and nothing else: no volume, account, port or privilege can come in here.
package pod

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

// TrustConfigMap is what a proxy's pod has the roots of the discovery channel from. One that
// starts without it would get it with the kubelet's next look only.
const TrustConfigMap = "coxswain-discovery-trust"

// The contract with who renders the template.
const (
	proxyContainer = "aether-proxy"
	envoyContainer = "envoy"
	sharedScope    = "--scope=shared"

	scopeFlag        = "--scope="
	drainDelayFlag   = "--drain-delay="
	drainTimeoutFlag = "--drain-timeout="
	waitFlag         = "--timeout=" // of the command that asks for the drain and waits for it
	envoyDrainFlag   = "--drain-time-s"

	defaultDrainDelay = 5 * time.Second
)

// ErrTemplate is returned for a template that cannot be made a dedicated Gateway's.
var ErrTemplate = errors.New("template of proxies' pods")

// Template is the pod of a shared proxy.
type Template struct {
	template corev1.PodTemplateSpec
	delay    time.Duration // from the request to drain to the first connection that is drained
}

// Parse reads a corev1.PodTemplateSpec in YAML. It is to have an init container aether-proxy,
// which outlives the container envoy, is told --scope=shared, and mounts nothing that is
// only in its own namespace.
func Parse(text []byte) (*Template, error) {
	t := &Template{delay: defaultDrainDelay}
	if err := yaml.UnmarshalStrict(text, &t.template); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemplate, err)
	}
	spec := &t.template.Spec
	proxy, envoy := named(spec.InitContainers, proxyContainer), named(spec.Containers, envoyContainer)
	switch {
	case proxy == nil:
		return nil, fmt.Errorf("%w: spec.initContainers: there is no %s", ErrTemplate, proxyContainer)
	case envoy == nil:
		return nil, fmt.Errorf("%w: spec.containers: there is no %s", ErrTemplate, envoyContainer)
	case ptr.Deref(proxy.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways:
		return nil, fmt.Errorf("%w: spec.initContainers: %s is to have restartPolicy Always", ErrTemplate, proxyContainer)
	case ptr.Deref(spec.AutomountServiceAccountToken, true):
		return nil, fmt.Errorf("%w: spec.automountServiceAccountToken is not false", ErrTemplate)
	case count(proxy.Args, sharedScope) != 1:
		return nil, fmt.Errorf("%w: the args of %s have %s %d times, want once", ErrTemplate, proxyContainer, sharedScope, count(proxy.Args, sharedScope))
	}
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; !portable(v) {
			return nil, fmt.Errorf("%w: spec.volumes: %s is not in every namespace", ErrTemplate, v.Name)
		}
	}
	for _, arg := range proxy.Args {
		if value, is := strings.CutPrefix(arg, drainDelayFlag); is {
			delay, err := time.ParseDuration(value)
			if err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrTemplate, arg, err)
			}
			t.delay = delay
		}
	}
	return t, nil
}

// portable reports whether a volume is the same in every namespace.
func portable(v *corev1.Volume) bool {
	if v.Projected != nil {
		return !slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.Secret != nil || s.ConfigMap != nil && s.ConfigMap.Name != TrustConfigMap
		})
	}
	return v.EmptyDir != nil || v.DownwardAPI != nil || v.ConfigMap != nil && v.ConfigMap.Name == TrustConfigMap
}

func named(list []corev1.Container, name string) *corev1.Container {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

func count(list []string, what string) int {
	n := 0
	for _, s := range list {
		if s == what {
			n++
		}
	}
	return n
}
