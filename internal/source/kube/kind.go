package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/trust"
)

// kind is how objects of one kind are read.
type kind struct {
	Name     object.Kind
	Resource schema.GroupVersionResource
	New      func() object.Object
	// Selector leaves objects out that can never be meant.
	Selector fields.Selector
	// Cluster says that its objects are in no namespace.
	Cluster bool
	// Namespace is the only one that is followed; empty: all are.
	Namespace string
	// Trim takes from an object of which we are the only owner what nothing reads, so that
	// it is not kept. What all kinds have is taken from them anyway.
	Trim func(object.Object)
	// Decoder makes an object of what came; nil: what came is one.
	Decoder decoder
}

// custom reports whether the kind is defined by a CustomResourceDefinition, which need
// not be there.
func (k kind) custom() bool {
	return k.Resource.Group == gatewayv1.GroupName || k.Resource.Group == configv1.GroupName
}

// feed is a kind, or a kind in one namespace: what is listed and watched by itself.
type feed struct {
	Kind      object.Kind
	Namespace string // empty: all
}

func (k kind) feed() feed { return feed{k.Name, k.Namespace} }

// String is for people.
func (f feed) String() string {
	if f.Namespace == "" {
		return string(f.Kind)
	}
	return string(f.Kind) + " of namespace " + f.Namespace
}

// about is what to call the feed where it is told what is wrong with it.
func (k kind) about() string {
	if k.Namespace == "" {
		return k.definition()
	}
	return k.definition() + " of namespace " + k.Namespace
}

// position is under what it is kept how far the feed was followed.
func (k kind) position() string {
	if k.Namespace == "" {
		return k.definition()
	}
	return k.definition() + "/" + k.Namespace
}

// within is what to follow of kinds to see nothing but some namespaces, and of the classes one.
// Without namespaces that is all.
func within(all []kind, namespaces []string, class string) []kind {
	if len(namespaces) == 0 {
		return all
	}
	var out []kind
	for _, k := range all {
		if k.Name == object.GatewayClass {
			k.Selector = fields.OneTermEqualSelector("metadata.name", class)
		}
		if k.Cluster {
			out = append(out, k)
			continue
		}
		for _, n := range namespaces {
			one := k
			one.Namespace = n
			out = append(out, one)
		}
	}
	return out
}

// definition is the name of the kind's CustomResourceDefinition.
func (k kind) definition() string { return k.Resource.GroupResource().String() }

// kinds is every kind that is read, in the order of object.Kinds. Of the Secret that is
// withheld nothing is kept but that it is there.
func kinds(withheld types.NamespacedName, crds *crd.Validator) []kind {
	gateway := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersion(gatewayv1.GroupVersion).WithResource(resource)
	}
	own := func(resource string) schema.GroupVersionResource {
		return configv1.GroupVersion().WithResource(resource)
	}
	core := func(resource string) schema.GroupVersionResource {
		return corev1.SchemeGroupVersion.WithResource(resource)
	}
	return []kind{
		{Name: object.Namespace, Cluster: true, Resource: core("namespaces"), New: func() object.Object { return &corev1.Namespace{} }, Trim: trimNamespace},
		{Name: object.GatewayClass, Cluster: true, Resource: gateway("gatewayclasses"), New: func() object.Object { return &gatewayv1.GatewayClass{} }, Trim: trimGatewayClass},
		{Name: object.GatewayParameters, Resource: own("gatewayparameters"), New: anything, Decoder: parameters{crds}},
		{Name: object.MeshConfig, Resource: own("meshconfigs"), New: anything, Trim: trimMeshConfig, Decoder: meshConfigs{}},
		{Name: object.ReferenceGrant, Resource: gateway("referencegrants"), New: func() object.Object { return &gatewayv1.ReferenceGrant{} }},
		{
			Name: object.Secret, Resource: core("secrets"), New: func() object.Object { return &corev1.Secret{} }, Trim: trimSecret(withheld),
			// Neither holds a certificate, and both can be many and large.
			Selector: fields.AndSelectors(
				fields.OneTermNotEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)),
				fields.OneTermNotEqualSelector("type", "helm.sh/release.v1"),
			),
		},
		{Name: object.ConfigMap, Resource: core("configmaps"), New: func() object.Object { return &corev1.ConfigMap{} }, Trim: trimConfigMap},
		{Name: object.BackendTLSPolicy, Resource: gateway("backendtlspolicies"), New: func() object.Object { return &gatewayv1.BackendTLSPolicy{} }, Trim: trimBackendTLSPolicy},
		{Name: object.Service, Resource: core("services"), New: func() object.Object { return &corev1.Service{} }, Trim: trimService},
		{Name: object.EndpointSlice, Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), New: func() object.Object { return &discoveryv1.EndpointSlice{} }, Trim: trimEndpointSlice},
		{Name: object.Gateway, Resource: gateway("gateways"), New: func() object.Object { return &gatewayv1.Gateway{} }, Trim: trimGateway},
		{Name: object.ListenerSet, Resource: gateway("listenersets"), New: func() object.Object { return &gatewayv1.ListenerSet{} }, Trim: trimListenerSet},
		{Name: object.HTTPRoute, Resource: gateway("httproutes"), New: func() object.Object { return &gatewayv1.HTTPRoute{} }, Trim: trimHTTPRoute},
	}
}

// anything is an object before it is read.
func anything() object.Object { return &unstructured.Unstructured{} }

// newScheme is the types of all kinds.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme, gatewayv1.Install, addOwn} {
		utilruntime.Must(add(s)) // fails only if two types of one name are compiled in
	}
	return s
}

// Statuses are written by us or by others, and read by whoever writes them, from the
// API: what proxies serve does not depend on them.

func trimNamespace(o object.Object) {
	n := o.(*corev1.Namespace)
	n.Spec, n.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
}

func trimGatewayClass(o object.Object) {
	o.(*gatewayv1.GatewayClass).Status = gatewayv1.GatewayClassStatus{}
}

func trimMeshConfig(o object.Object) { o.(*configv1.MeshConfig).Status = configv1.MeshConfigStatus{} }

func trimBackendTLSPolicy(o object.Object) {
	o.(*gatewayv1.BackendTLSPolicy).Status = gatewayv1.PolicyStatus{}
}

func trimGateway(o object.Object) { o.(*gatewayv1.Gateway).Status = gatewayv1.GatewayStatus{} }

func trimListenerSet(o object.Object) {
	o.(*gatewayv1.ListenerSet).Status = gatewayv1.ListenerSetStatus{}
}

func trimHTTPRoute(o object.Object) { o.(*gatewayv1.HTTPRoute).Status = gatewayv1.HTTPRouteStatus{} }

// trimService leaves the addresses of Services that are in front of Gateways.
func trimService(o object.Object) {
	s := o.(*corev1.Service)
	keep := corev1.ServiceStatus{}
	if s.Labels[front.ManagedByLabel] == front.FieldManager {
		keep.LoadBalancer = s.Status.LoadBalancer
	}
	s.Status = keep
}

// trimEndpointSlice leaves addresses, ports, conditions and the names of pods.
func trimEndpointSlice(o object.Object) {
	for i := range o.(*discoveryv1.EndpointSlice).Endpoints {
		e := &o.(*discoveryv1.EndpointSlice).Endpoints[i]
		if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: ref.Namespace, Name: ref.Name}
		} else {
			e.TargetRef = nil
		}
		e.Hostname, e.DeprecatedTopology, e.NodeName, e.Zone, e.Hints = nil, nil, nil, nil, nil
	}
}

// authorities is the key under which Secrets and ConfigMaps hold certificate authorities.
const authorities = trust.Key

// trimSecret leaves certificates, their keys and authorities: other secrets are none of
// our business and are not kept. The one that is withheld has nothing left.
func trimSecret(withheld types.NamespacedName) func(object.Object) {
	return func(o object.Object) {
		s := o.(*corev1.Secret)
		kept := map[string][]byte{}
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey, authorities} {
			if value, has := s.Data[key]; has {
				kept[key] = value
			}
		}
		if s.Namespace == withheld.Namespace && s.Name == withheld.Name {
			kept, s.Type = nil, corev1.SecretTypeOpaque
		}
		s.Data, s.StringData = kept, nil
	}
}

// trimConfigMap leaves authorities.
func trimConfigMap(o object.Object) {
	m := o.(*corev1.ConfigMap)
	text, isText := m.Data[authorities]
	binary, isBinary := m.BinaryData[authorities]
	m.Data, m.BinaryData = nil, nil
	if isText {
		m.Data = map[string]string{authorities: text}
	}
	if isBinary {
		m.BinaryData = map[string][]byte{authorities: binary}
	}
}
