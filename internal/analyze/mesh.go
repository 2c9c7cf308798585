package analyze

import (
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
)

// meshConfig is that of a namespace, nil if there is none.
func (a *analysis) meshConfig(namespace string) *configv1.MeshConfig {
	o, _ := a.objects[object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: meshConfigName}].(*configv1.MeshConfig)
	return o
}

func (a *analysis) lintMeshConfig(k object.Key) {
	own := a.meshConfig(k.Namespace)
	if own == nil {
		return
	}
	effective := meshconfig.Resolve(a.c.System, a.meshConfig(a.c.ReleaseNamespace), own)
	for _, idle := range meshconfig.NoEffect(a.c.System, own.Spec, effective) {
		severity := code.Severity("")
		message := "has no effect: " + idle.Reason
		if !a.c.SystemKnown && (strings.Contains(idle.Reason, "system config") || strings.Contains(idle.Reason, "otel.")) {
			severity = code.Info // it is where nobody set that, which is all that is known
			message = "has no effect where the installation's values are the defaults: " + idle.Reason
		}
		a.sayAs(k, code.MeshIdle, severity, "spec."+idle.Path, "%s", message)
	}
	if k.Namespace != a.c.ReleaseNamespace && (a.sees(object.Gateway) || a.anyGateway("")) && !a.anyGateway(k.Namespace) {
		a.say(k, code.MeshAlone, "metadata.namespace", "there is no Gateway of Aether's in namespace %s, so it concerns no proxy", k.Namespace)
	}
}

// anyGateway reports whether a Gateway of ours is in a namespace, or in any for none.
func (a *analysis) anyGateway(namespace string) bool {
	for k, o := range a.objects {
		if _, is := o.(*gatewayv1.Gateway); is && (namespace == "" || k.Namespace == namespace) && a.reported(k) {
			return true
		}
	}
	return false
}
