package analyze

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

const meshConfigName = configv1.MeshConfigName

// reference is one object's word of another one.
type reference struct {
	From   object.Key
	Path   string // of the field that has it
	To     object.Key
	Port   int32 // of a Service; 0: none
	Parent bool  // From attaches to To
}

// cross reports whether it needs a ReferenceGrant.
func (r reference) cross() bool {
	return !r.Parent && r.From.Namespace != "" && r.To.Namespace != "" && r.From.Namespace != r.To.Namespace
}

// references is every reference that the written objects have to kinds that are read, in the
// order of their keys. Which kinds may be referred to is for the graph to say.
func (a *analysis) references() []reference {
	var out []reference
	for k, o := range a.objects {
		w := &walk{from: k}
		switch o := o.(type) {
		case *gatewayv1.GatewayClass:
			w.class(o)
		case *gatewayv1.Gateway:
			w.gateway(o)
		case *gatewayv1.ListenerSet:
			w.set(o)
		case *gatewayv1.HTTPRoute:
			w.route(o)
		case *gatewayv1.BackendTLSPolicy:
			w.policy(o)
		}
		out = append(out, w.found...)
	}
	slices.SortStableFunc(out, func(x, y reference) int {
		return cmp.Or(x.From.Compare(y.From), cmp.Compare(x.Path, y.Path))
	})
	return out
}

// walk collects the references of one object.
type walk struct {
	from  object.Key
	found []reference
}

// to adds a reference; those to kinds that are not read are none.
func (w *walk) to(path string, group, kind, namespace, name string) *reference {
	if namespace == "" {
		namespace = w.from.Namespace
	}
	k := object.Key{Kind: object.Kind(kind), Namespace: namespace, Name: name}
	if of, known := groupOf(k.Kind); !known || of != group || name == "" {
		return &reference{}
	}
	w.found = append(w.found, reference{From: w.from, Path: path, To: k})
	return &w.found[len(w.found)-1]
}

// groupOf is the API group of a kind that others refer to by group and kind.
func groupOf(k object.Kind) (group string, known bool) {
	switch k { //nolint:exhaustive // nobody refers so to the rest
	case object.Service, object.Secret, object.ConfigMap:
		return "", true
	case object.Gateway, object.ListenerSet:
		return gatewayv1.GroupName, true
	case object.GatewayParameters:
		return configv1.GroupName, true
	}
	return "", false
}

func (w *walk) class(o *gatewayv1.GatewayClass) {
	if p := o.Spec.ParametersRef; p != nil && p.Namespace != nil {
		w.to("spec.parametersRef", string(p.Group), string(p.Kind), string(*p.Namespace), p.Name)
	}
}

func (w *walk) gateway(o *gatewayv1.Gateway) {
	w.found = append(w.found, reference{
		From: w.from, Path: "spec.gatewayClassName", Parent: true,
		To: object.Key{Kind: object.GatewayClass, Name: string(o.Spec.GatewayClassName)},
	})
	if i := o.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		w.to("spec.infrastructure.parametersRef", string(i.ParametersRef.Group), string(i.ParametersRef.Kind), "", i.ParametersRef.Name)
	}
	for i := range o.Spec.Listeners {
		w.certificates(fmt.Sprintf("spec.listeners[%d]", i), o.Spec.Listeners[i].TLS)
	}
	if o.Spec.TLS == nil {
		return
	}
	if b := o.Spec.TLS.Backend; b != nil && b.ClientCertificateRef != nil {
		w.secret("spec.tls.backend.clientCertificateRef", *b.ClientCertificateRef)
	}
	if f := o.Spec.TLS.Frontend; f != nil {
		w.authorities("spec.tls.frontend.default", f.Default.Validation)
		for i := range f.PerPort {
			w.authorities(fmt.Sprintf("spec.tls.frontend.perPort[%d].tls", i), f.PerPort[i].TLS.Validation)
		}
	}
}

func (w *walk) certificates(path string, tls *gatewayv1.ListenerTLSConfig) {
	if tls == nil {
		return
	}
	for i, ref := range tls.CertificateRefs {
		w.secret(fmt.Sprintf("%s.tls.certificateRefs[%d]", path, i), ref)
	}
}

func (w *walk) secret(path string, ref gatewayv1.SecretObjectReference) {
	w.to(path, string(ptr.Deref(ref.Group, "")), string(ptr.Deref(ref.Kind, "Secret")), string(ptr.Deref(ref.Namespace, "")), string(ref.Name))
}

func (w *walk) authorities(path string, v *gatewayv1.FrontendTLSValidation) {
	if v == nil {
		return
	}
	for i, ref := range v.CACertificateRefs {
		w.to(fmt.Sprintf("%s.validation.caCertificateRefs[%d]", path, i), string(ref.Group), string(ref.Kind), string(ptr.Deref(ref.Namespace, "")), string(ref.Name))
	}
}

func (w *walk) set(o *gatewayv1.ListenerSet) {
	p := o.Spec.ParentRef
	w.to("spec.parentRef", string(ptr.Deref(p.Group, gatewayv1.GroupName)), string(ptr.Deref(p.Kind, "Gateway")), string(ptr.Deref(p.Namespace, "")), string(p.Name)).Parent = true
	for i := range o.Spec.Listeners {
		w.certificates(fmt.Sprintf("spec.listeners[%d]", i), o.Spec.Listeners[i].TLS)
	}
}

func (w *walk) route(o *gatewayv1.HTTPRoute) {
	for i, p := range o.Spec.ParentRefs {
		w.to(fmt.Sprintf("spec.parentRefs[%d]", i), string(ptr.Deref(p.Group, gatewayv1.GroupName)), string(ptr.Deref(p.Kind, "Gateway")), string(ptr.Deref(p.Namespace, "")), string(p.Name)).Parent = true
	}
	for _, b := range backends(o) {
		w.to(b.Path, string(ptr.Deref(b.Ref.Group, "")), string(ptr.Deref(b.Ref.Kind, "Service")), string(ptr.Deref(b.Ref.Namespace, "")), string(b.Ref.Name)).Port = ptr.Deref(b.Ref.Port, 0)
	}
}

// backend is one reference of a route to where requests go.
type backend struct {
	Path string
	Ref  gatewayv1.BackendObjectReference
}

func backends(o *gatewayv1.HTTPRoute) []backend {
	var out []backend
	mirrors := func(path string, list []gatewayv1.HTTPRouteFilter) {
		for i, f := range list {
			if f.RequestMirror != nil {
				out = append(out, backend{fmt.Sprintf("%s.filters[%d].requestMirror.backendRef", path, i), f.RequestMirror.BackendRef})
			}
		}
	}
	for i := range o.Spec.Rules {
		at := fmt.Sprintf("spec.rules[%d]", i)
		mirrors(at, o.Spec.Rules[i].Filters)
		for j := range o.Spec.Rules[i].BackendRefs {
			b := &o.Spec.Rules[i].BackendRefs[j]
			path := fmt.Sprintf("%s.backendRefs[%d]", at, j)
			out = append(out, backend{path, b.BackendObjectReference})
			mirrors(path, b.Filters)
		}
	}
	return out
}

func (w *walk) policy(o *gatewayv1.BackendTLSPolicy) {
	for i, t := range o.Spec.TargetRefs {
		w.to(fmt.Sprintf("spec.targetRefs[%d]", i), string(t.Group), string(t.Kind), "", string(t.Name))
	}
	for i, ref := range o.Spec.Validation.CACertificateRefs {
		w.to(fmt.Sprintf("spec.validation.caCertificateRefs[%d]", i), string(ref.Group), string(ref.Kind), "", string(ref.Name))
	}
}
