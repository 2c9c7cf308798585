package manifest

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/spelling"
)

// kind is how one kind is read.
type kind struct {
	name  object.Kind
	group string
	make  func() object.Object // an empty object of the type that comes out
	// defaults and validates a core type after decoding; nil for a custom resource,
	// which its definition defaults and validates.
	admit func(object.Object) []Finding
}

func kinds() []kind {
	const gateway = gatewayv1.GroupName
	return []kind{
		{object.Namespace, "", func() object.Object { return &corev1.Namespace{} }, admitNamespace},
		{object.Service, "", func() object.Object { return &corev1.Service{} }, admitService},
		{object.Secret, "", func() object.Object { return &corev1.Secret{} }, admitSecret},
		{object.ConfigMap, "", func() object.Object { return &corev1.ConfigMap{} }, admitConfigMap},
		{object.EndpointSlice, discoveryv1.GroupName, func() object.Object { return &discoveryv1.EndpointSlice{} }, admitEndpointSlice},
		{object.GatewayClass, gateway, func() object.Object { return &gatewayv1.GatewayClass{} }, nil},
		{object.Gateway, gateway, func() object.Object { return &gatewayv1.Gateway{} }, nil},
		{object.ListenerSet, gateway, func() object.Object { return &gatewayv1.ListenerSet{} }, nil},
		{object.HTTPRoute, gateway, func() object.Object { return &gatewayv1.HTTPRoute{} }, nil},
		{object.ReferenceGrant, gateway, func() object.Object { return &gatewayv1.ReferenceGrant{} }, nil},
		{object.BackendTLSPolicy, gateway, func() object.Object { return &gatewayv1.BackendTLSPolicy{} }, nil},
		{object.MeshConfig, configv1.GroupName, func() object.Object { return &configv1.MeshConfig{} }, nil},
		{object.GatewayParameters, configv1.GroupName, func() object.Object { return &configv1.GatewayParameters{} }, nil},
	}
}

// lookup finds how a kind of an API group is read.
func lookup(group, name string) (kind, bool) {
	for _, k := range kinds() {
		if k.group == group && string(k.name) == name {
			return k, true
		}
	}
	return kind{}, false
}

// groupOf is the API group of an apiVersion; the core group has no name.
func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
}

// identify sets Key, or the findings that say why there is none.
func identify(d Document) Document {
	refuse := func(path, message string) Document {
		d.Findings = append(d.Findings, Finding{Severity: Refused, Path: path, Message: message})
		return d
	}
	apiVersion, _ := d.content["apiVersion"].(string)
	name, _ := d.content["kind"].(string)
	if apiVersion == "" {
		d.Nameless = d.content["apiVersion"] == nil && d.content["kind"] == nil
		return refuse("apiVersion", "is required")
	}
	if name == "" {
		return refuse("kind", "is required")
	}
	group := groupOf(apiVersion)
	k, ok := lookup(group, name)
	if !ok {
		if path, message := misnamed(group, name); path != "" {
			return refuse(path, message)
		}
		d.Findings = append(d.Findings, Finding{Severity: Ignored, Message: fmt.Sprintf("%s %s is not a kind that is read", apiVersion, name)})
		return d
	}
	meta, ok := d.content["metadata"].(map[string]any)
	if !ok {
		return refuse("metadata", "is required and is an object")
	}
	key := object.Key{Kind: k.name}
	if key.Name, ok = meta["name"].(string); !ok || key.Name == "" {
		return refuse("metadata.name", "is required and is a string (generateName is not for files)")
	}
	if key.Namespace, ok = meta["namespace"].(string); !ok && meta["namespace"] != nil {
		return refuse("metadata.namespace", "is a string")
	}
	switch {
	case !k.name.Namespaced() && key.Namespace != "":
		d.Findings = append(d.Findings, Finding{Severity: Warning, Path: "metadata.namespace", Message: fmt.Sprintf("is dropped: a %s is not in a namespace", k.name)})
		key.Namespace = ""
	case k.name.Namespaced() && key.Namespace == "":
		key.Namespace = corev1.NamespaceDefault
	}
	d.Key = key
	return d
}

// maxGroupDistance is how many letters a group may differ in from the one that is meant: a part
// of its name may be missing (gateway.networking.io).
const maxGroupDistance = 4

// misnamed says which kind is meant where a name is almost that of one that is read, and where
// in the document; nothing if it is another program's. What was meant to be read and is not
// would otherwise be taken for an object that is gone. Names of kinds may differ by a letter,
// and by letter case: TCPRoute is no misspelt HTTPRoute.
func misnamed(group, name string) (path, message string) {
	for _, k := range kinds() {
		if k.group != gatewayv1.GroupName && k.group != configv1.GroupName {
			continue // so many things are called like a Service
		}
		sameKind := string(k.name) == name
		nearGroup := spelling.Distance(group, k.group) <= maxGroupDistance
		switch {
		case k.group == group && spelling.Distance(string(k.name), name) <= 1:
			return "kind", fmt.Sprintf("%s has no kind %q; did you mean %s?", group, name, k.name)
		case sameKind && nearGroup:
			return "apiVersion", fmt.Sprintf("group %q has no kind %s; did you mean %s/v1?", group, name, k.group)
		}
	}
	return "", ""
}

// gvk is the type that comes out, whichever served version came in.
func (k kind) gvk() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: k.group, Version: "v1", Kind: string(k.name)}
}
