package routing

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	gatewayv1beta1 "sigs.k8s.io/gateway-api/apis/v1beta1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
)

// generator makes random objects out of few names, so that they refer to each other,
// collide and dangle.
type generator struct {
	*rand.Rand
	generation int64
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

func maybe[T any](g *generator, v T) *T {
	if g.IntN(2) == 0 {
		return nil
	}
	return &v
}

func (g *generator) namespace() string { return pick(g, "a", "b", "aether-system") }

func (g *generator) host() gatewayv1.Hostname {
	return gatewayv1.Hostname(pick(g, "x.example.com", "y.example.com", "*.example.com", "*.x.example.com", "Z.Example.com", "example.net", "*.net"))
}

func (g *generator) meta(namespace, name string) metav1.ObjectMeta {
	g.generation++
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, Generation: g.generation,
		CreationTimestamp: metav1.Unix(1700000000+int64(g.IntN(4)), 0),
	}
}

// change is a random change: mostly a new or replaced object, else a removal.
func (g *generator) change() object.Change {
	kind := pick(g, append(object.Kinds(), object.HTTPRoute, object.HTTPRoute, object.HTTPRoute, object.Gateway, object.ListenerSet, object.ListenerSet, object.Service, object.EndpointSlice, object.BackendTLSPolicy)...)
	n := pick(g, "one", "two", "three")
	key := object.Key{Kind: kind, Namespace: g.namespace(), Name: n}
	switch kind {
	case object.GatewayClass:
		key.Namespace, key.Name = "", pick(g, "ours", "theirs", "other-ours")
	case object.Namespace:
		key.Namespace, key.Name = "", g.namespace()
	case object.MeshConfig:
		key.Name = pick(g, "default", "default", "other")
	default:
	}
	c := object.Change{Key: key}
	if g.IntN(5) > 0 {
		c.Object = g.object(key)
	}
	if g.IntN(6) == 0 {
		c.Refused = "is odd"
	}
	return c
}

func (g *generator) object(k object.Key) object.Object {
	m := g.meta(k.Namespace, k.Name)
	switch k.Kind {
	case object.GatewayClass:
		o := &gatewayv1.GatewayClass{ObjectMeta: m}
		o.Spec.ControllerName = gatewayv1.GatewayController(pick(g, testConfig().ControllerName, testConfig().ControllerName, "example.com/other"))
		if k.Name == "theirs" {
			o.Spec.ControllerName = "example.com/other"
		}
		if g.IntN(4) == 0 {
			o.Spec.ParametersRef = &gatewayv1.ParametersReference{
				Group: pick[gatewayv1.Group](g, configv1.GroupName, configv1.GroupName, "example.com"), Kind: "GatewayParameters",
				Name: "one", Namespace: maybe(g, gatewayv1.Namespace(g.namespace())),
			}
		}
		return o
	case object.Gateway:
		return g.gateway(m)
	case object.ListenerSet:
		return g.listenerSet(m)
	case object.HTTPRoute:
		return g.route(m)
	case object.ReferenceGrant:
		return g.grant(m)
	case object.Namespace:
		m.Labels = map[string]string{"team": pick(g, "red", "blue")}
		return &corev1.Namespace{ObjectMeta: m}
	case object.Service:
		return g.service(m)
	case object.EndpointSlice:
		return g.slice(m)
	case object.Secret:
		p := pairs()
		data := map[string][]byte{trust.Key: p[0].cert, corev1.TLSCertKey: pick(g, p[0].cert, p[1].cert), corev1.TLSPrivateKeyKey: pick(g, p[0].key, p[0].key, p[1].key, []byte("garbage"))}
		return &corev1.Secret{ObjectMeta: m, Type: pick(g, corev1.SecretTypeTLS, corev1.SecretTypeTLS, corev1.SecretTypeOpaque), Data: data}
	case object.MeshConfig:
		o := &configv1.MeshConfig{ObjectMeta: m, Spec: &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{
			AccessLogsEnabled: maybe(g, g.IntN(2) == 0), AccessLogSuccessSampleRate: maybe(g, uint32(g.IntN(101))),
		}}}
		if g.IntN(3) == 0 {
			o.UnknownFields = []string{"proxy.new"}
		}
		return o
	case object.GatewayParameters:
		return &configv1.GatewayParameters{ObjectMeta: m, Spec: configv1.GatewayParametersSpec{
			Mode:        maybe(g, pick(g, configv1.GatewayModeShared, configv1.GatewayModeDedicated)),
			RouteScopes: maybe(g, pick(g, configv1.RouteScopesAuto, configv1.RouteScopesSingle, configv1.RouteScopesPerHost)),
			Clients:     maybe(g, g.clients()),
		}}
	case object.BackendTLSPolicy:
		return g.policy(m)
	case object.ConfigMap:
	}
	p := pairs()
	return &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{pick(g, trust.Key, trust.Key, "other"): pick(g, string(p[0].cert), string(p[1].cert), "garbage")}}
}

func (g *generator) clients() configv1.ClientPolicy {
	return configv1.ClientPolicy{
		TrustedHops: maybe(g, int32(g.IntN(2))), ConnectionLimit: maybe(g, int32(g.IntN(3))),
		TLS: maybe(g, configv1.ClientTLS{MinVersion: maybe(g, pick(g, configv1.TLS12, configv1.TLS13))}),
		ProxyProtocol: maybe(g, configv1.ProxyProtocol{
			Mode:         maybe(g, pick(g, configv1.ProxyProtocolOff, configv1.ProxyProtocolAccept, configv1.ProxyProtocolRequire)),
			TrustedCIDRs: pick(g, nil, []configv1.CIDR{"10.0.0.0/8"}, []configv1.CIDR{"10.0.0.0/8", "fd00::/8"}),
		}),
	}
}

// validation is how a Gateway verifies its clients.
func (g *generator) validation() gatewayv1.TLSConfig {
	if g.IntN(3) == 0 {
		return gatewayv1.TLSConfig{}
	}
	v := &gatewayv1.FrontendTLSValidation{Mode: pick(g, gatewayv1.AllowValidOnly, gatewayv1.AllowInsecureFallback, "")}
	for range 1 + g.IntN(2) {
		v.CACertificateRefs = append(v.CACertificateRefs, gatewayv1.ObjectReference{
			Kind: pick[gatewayv1.Kind](g, "ConfigMap", "ConfigMap", "ConfigMap", "Secret"), Name: pick[gatewayv1.ObjectName](g, "one", "two"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace())),
		})
	}
	return gatewayv1.TLSConfig{Validation: v}
}

func (g *generator) policy(m metav1.ObjectMeta) *gatewayv1.BackendTLSPolicy {
	o := &gatewayv1.BackendTLSPolicy{ObjectMeta: m}
	for range 1 + g.IntN(8)/7 {
		o.Spec.TargetRefs = append(o.Spec.TargetRefs, gatewayv1.LocalPolicyTargetReferenceWithSectionName{
			LocalPolicyTargetReference: gatewayv1.LocalPolicyTargetReference{
				Kind: pick[gatewayv1.Kind](g, "Service", "Service", "Service", "Bucket"), Name: pick[gatewayv1.ObjectName](g, "one", "two", "three"),
			},
			SectionName: maybe(g, pick[gatewayv1.SectionName](g, "http", "web", "nowhere")),
		})
	}
	v := &o.Spec.Validation
	v.Hostname = pick[gatewayv1.PreciseHostname](g, "a.example.com", "b.example.com", "10.0.0.1")
	if g.IntN(3) == 0 {
		v.WellKnownCACertificates = maybe(g, pick(g, gatewayv1.WellKnownCACertificatesSystem, "example.com/ours"))
	} else {
		for range 1 + g.IntN(2) {
			v.CACertificateRefs = append(v.CACertificateRefs, gatewayv1.LocalObjectReference{
				Kind: pick[gatewayv1.Kind](g, "ConfigMap", "ConfigMap", "Secret", "Bucket"), Name: pick[gatewayv1.ObjectName](g, "one", "two"),
			})
		}
	}
	for range g.IntN(3) {
		v.SubjectAltNames = append(v.SubjectAltNames, pick(
			g,
			gatewayv1.SubjectAltName{Type: gatewayv1.HostnameSubjectAltNameType, Hostname: "*.example.com"},
			gatewayv1.SubjectAltName{Type: gatewayv1.URISubjectAltNameType, URI: "spiffe://example.com/a"},
			gatewayv1.SubjectAltName{Type: "Address"},
		))
	}
	return o
}

func (g *generator) gateway(m metav1.ObjectMeta) *gatewayv1.Gateway {
	o := &gatewayv1.Gateway{ObjectMeta: m}
	o.Spec.GatewayClassName = pick[gatewayv1.ObjectName](g, "ours", "ours", "ours", "theirs", "other-ours")
	if g.IntN(3) == 0 {
		o.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{Group: configv1.GroupName, Kind: "GatewayParameters", Name: pick(g, "one", "two")}}
	}
	if g.IntN(8) == 0 {
		o.Spec.Addresses = []gatewayv1.GatewaySpecAddress{{Value: pick(g, "127.0.0.1", "192.0.2.1", "")}}
	}
	if g.IntN(3) == 0 {
		o.Spec.TLS = &gatewayv1.GatewayTLSConfig{Backend: &gatewayv1.GatewayBackendTLS{ClientCertificateRef: &gatewayv1.SecretObjectReference{
			Name: pick[gatewayv1.ObjectName](g, "one", "two"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace())), Kind: maybe(g, pick[gatewayv1.Kind](g, "Secret", "Secret", "Bucket")),
		}}}
	}
	if g.IntN(3) == 0 {
		o.Spec.TLS = &gatewayv1.GatewayTLSConfig{Frontend: &gatewayv1.FrontendTLSConfig{Default: g.validation()}}
		for _, port := range []int32{80, 443} {
			if g.IntN(3) == 0 {
				o.Spec.TLS.Frontend.PerPort = append(o.Spec.TLS.Frontend.PerPort, gatewayv1.TLSPortConfig{Port: port, TLS: g.validation()})
			}
		}
	}
	if g.IntN(2) == 0 {
		o.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: maybe(g, gatewayv1.ListenerNamespaces{
			From:     maybe(g, pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector, gatewayv1.NamespacesFromNone)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
		})}
	}
	o.Spec.Listeners = g.listeners()
	return o
}

func (g *generator) listenerSet(m metav1.ObjectMeta) *gatewayv1.ListenerSet {
	o := &gatewayv1.ListenerSet{ObjectMeta: m}
	o.Spec.ParentRef = gatewayv1.ParentGatewayReference{
		Name: pick[gatewayv1.ObjectName](g, "one", "two", "three"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace())),
		Kind: maybe(g, pick[gatewayv1.Kind](g, "Gateway", "Gateway", "Gateway", "Bucket")),
	}
	for _, l := range g.listeners() {
		o.Spec.Listeners = append(o.Spec.Listeners, gatewayv1.ListenerEntry(l))
	}
	return o
}

func (g *generator) listeners() []gatewayv1.Listener {
	var list []gatewayv1.Listener
	for i := range 1 + g.IntN(4) {
		l := gatewayv1.Listener{
			Name: gatewayv1.SectionName(pick(g, "web", "tls", "80", "extra") + fmt.Sprint(i)), Port: pick[int32](g, 80, 443, 8080),
			Protocol: pick(g, gatewayv1.HTTPProtocolType, gatewayv1.HTTPProtocolType, gatewayv1.HTTPSProtocolType, gatewayv1.TCPProtocolType),
			Hostname: maybe(g, g.host()),
		}
		if i == 0 {
			l.Name = "web"
		}
		if l.Protocol == gatewayv1.HTTPSProtocolType {
			l.TLS = &gatewayv1.ListenerTLSConfig{}
			for range 1 + g.IntN(2) {
				l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, gatewayv1.SecretObjectReference{Name: pick[gatewayv1.ObjectName](g, "one", "two"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace()))})
			}
		}
		if g.IntN(2) == 0 {
			l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{
				From:     maybe(g, pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector)),
				Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}},
			}}
			if g.IntN(4) == 0 {
				l.AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: pick[gatewayv1.Kind](g, "HTTPRoute", "TCPRoute")}}
			}
		}
		list = append(list, l)
	}
	return list
}

func (g *generator) route(m metav1.ObjectMeta) *gatewayv1.HTTPRoute {
	o := &gatewayv1.HTTPRoute{ObjectMeta: m}
	for range 1 + g.IntN(2) {
		ref := gatewayv1.ParentReference{Name: pick[gatewayv1.ObjectName](g, "one", "two", "three"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace()))}
		if g.IntN(3) == 0 {
			ref.Kind = maybe(g, gatewayv1.Kind("ListenerSet"))
		}
		if g.IntN(4) == 0 {
			ref.SectionName = maybe(g, pick[gatewayv1.SectionName](g, "web", "tls1"))
			ref.Port = maybe(g, pick[int32](g, 80, 443))
		}
		o.Spec.ParentRefs = append(o.Spec.ParentRefs, ref)
	}
	for range g.IntN(3) {
		o.Spec.Hostnames = append(o.Spec.Hostnames, g.host())
	}
	for range 1 + g.IntN(3) {
		var rule gatewayv1.HTTPRouteRule
		for range g.IntN(3) {
			rule.Matches = append(rule.Matches, g.match())
		}
		for range g.IntN(3) {
			rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{
				BackendRef: gatewayv1.BackendRef{BackendObjectReference: g.backend(), Weight: maybe(g, int32(g.IntN(3)))},
				Filters:    g.filters(8),
			})
		}
		rule.Filters = g.filters(3)
		rule.Name = maybe(g, pick[gatewayv1.SectionName](g, "first", "second", "1"))
		if g.IntN(4) == 0 {
			rule.Timeouts = &gatewayv1.HTTPRouteTimeouts{Request: maybe(g, pick[gatewayv1.Duration](g, "1s", "0s", "1h30m")), BackendRequest: maybe(g, pick[gatewayv1.Duration](g, "500ms", "0s", "soon"))}
		}
		o.Spec.Rules = append(o.Spec.Rules, rule)
	}
	return o
}

func (g *generator) backend() gatewayv1.BackendObjectReference {
	return gatewayv1.BackendObjectReference{
		Name: pick[gatewayv1.ObjectName](g, "one", "two", "three"), Namespace: maybe(g, gatewayv1.Namespace(g.namespace())),
		Port: maybe(g, pick[int32](g, 80, 8080)), Kind: maybe(g, pick[gatewayv1.Kind](g, "Service", "Service", "Bucket")),
	}
}

// filters is some filters, one time in rarity, that may not go together or be nonsense.
func (g *generator) filters(rarity int) (list []gatewayv1.HTTPRouteFilter) {
	if g.IntN(rarity) > 0 {
		return nil
	}
	headers := func() *gatewayv1.HTTPHeaderFilter {
		name := func() gatewayv1.HTTPHeaderName {
			return pick[gatewayv1.HTTPHeaderName](g, "X-One", "x-two", "X-Three", "Host", "Via", "Connection")
		}
		return &gatewayv1.HTTPHeaderFilter{
			Set: []gatewayv1.HTTPHeader{{Name: name(), Value: pick(g, "1", "%", "%REQ(HOST)%")}},
			Add: []gatewayv1.HTTPHeader{{Name: name(), Value: "2"}}, Remove: []string{pick(g, "X-Four", "x-five", "no header")},
		}
	}
	path := func() *gatewayv1.HTTPPathModifier {
		value := pick(g, "/", "", "/xyz", "/xyz/", "nonsense")
		if g.IntN(2) == 0 {
			return &gatewayv1.HTTPPathModifier{Type: gatewayv1.FullPathHTTPPathModifier, ReplaceFullPath: &value}
		}
		return &gatewayv1.HTTPPathModifier{Type: gatewayv1.PrefixMatchHTTPPathModifier, ReplacePrefixMatch: &value}
	}
	host := func() *gatewayv1.PreciseHostname {
		return maybe(g, pick[gatewayv1.PreciseHostname](g, "a.example", "b.example"))
	}
	for range 1 + g.IntN(2) {
		f := gatewayv1.HTTPRouteFilter{Type: pick[gatewayv1.HTTPRouteFilterType](g, "RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite", "RequestMirror", "RequestMirror", "CORS", "ExtensionRef", "Unheard")}
		if g.IntN(8) == 0 {
			return append(list, f)
		}
		switch f.Type {
		case gatewayv1.HTTPRouteFilterRequestHeaderModifier:
			f.RequestHeaderModifier = headers()
		case gatewayv1.HTTPRouteFilterResponseHeaderModifier:
			f.ResponseHeaderModifier = headers()
		case gatewayv1.HTTPRouteFilterRequestRedirect:
			f.RequestRedirect = &gatewayv1.HTTPRequestRedirectFilter{Scheme: maybe(g, pick(g, "http", "https", "ftp")), Hostname: host(), Path: path(), Port: maybe(g, pick[int32](g, 80, 443, 8080)), StatusCode: maybe(g, pick(g, 301, 308, 999))}
		case gatewayv1.HTTPRouteFilterURLRewrite:
			f.URLRewrite = &gatewayv1.HTTPURLRewriteFilter{Hostname: host(), Path: path()}
		case gatewayv1.HTTPRouteFilterRequestMirror:
			f.RequestMirror = &gatewayv1.HTTPRequestMirrorFilter{BackendRef: g.backend(), Percent: maybe(g, int32(g.IntN(101)))}
		case gatewayv1.HTTPRouteFilterCORS:
			f.CORS = &gatewayv1.HTTPCORSFilter{
				AllowOrigins: []gatewayv1.CORSOrigin{pick[gatewayv1.CORSOrigin](g, "*", "https://a.example", "http://*.example:81", "https://*", "nonsense")},
				AllowMethods: []gatewayv1.HTTPMethodWithWildcard{pick[gatewayv1.HTTPMethodWithWildcard](g, "*", "GET")}, AllowCredentials: maybe(g, true),
			}
		case gatewayv1.HTTPRouteFilterExtensionRef:
			f.ExtensionRef = &gatewayv1.LocalObjectReference{Group: "example.com", Kind: "Auth", Name: "one"}
		default:
		}
		list = append(list, f)
	}
	return list
}

func (g *generator) match() gatewayv1.HTTPRouteMatch {
	m := gatewayv1.HTTPRouteMatch{Method: maybe(g, gatewayv1.HTTPMethodGet)}
	if g.IntN(3) > 0 {
		m.Path = &gatewayv1.HTTPPathMatch{
			Type:  maybe(g, pick(g, gatewayv1.PathMatchExact, gatewayv1.PathMatchPathPrefix, gatewayv1.PathMatchRegularExpression, "Unknown")),
			Value: maybe(g, pick(g, "/", "/foo", "/foo/", "/foo/bar", "/(")),
		}
	}
	for range g.IntN(3) {
		m.Headers = append(m.Headers, gatewayv1.HTTPHeaderMatch{Name: pick[gatewayv1.HTTPHeaderName](g, "Version", "version", "color"), Value: pick(g, "1", "2"), Type: maybe(g, gatewayv1.HeaderMatchRegularExpression)})
	}
	if g.IntN(4) == 0 {
		m.QueryParams = []gatewayv1.HTTPQueryParamMatch{{Name: "q", Value: "1"}}
	}
	return m
}

func (g *generator) grant(m metav1.ObjectMeta) object.Object {
	spec := gatewayv1.ReferenceGrantSpec{
		From: []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: pick[gatewayv1.Kind](g, "HTTPRoute", "Gateway", "ListenerSet"), Namespace: gatewayv1.Namespace(g.namespace())}},
		To:   []gatewayv1.ReferenceGrantTo{{Kind: pick[gatewayv1.Kind](g, "Service", "Secret", "ConfigMap"), Name: maybe(g, pick[gatewayv1.ObjectName](g, "one", "two"))}},
	}
	if g.IntN(2) == 0 {
		return &gatewayv1beta1.ReferenceGrant{ObjectMeta: m, Spec: spec}
	}
	return &gatewayv1.ReferenceGrant{ObjectMeta: m, Spec: spec}
}

func (g *generator) service(m metav1.ObjectMeta) *corev1.Service {
	o := &corev1.Service{ObjectMeta: m}
	for _, p := range []int32{80, 8080} {
		if g.IntN(4) > 0 {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{
				Name: pick(g, "http", "web", ""), Port: p, TargetPort: intstr.FromInt32(p), Protocol: pick(g, "", corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP),
				AppProtocol: maybe(g, pick(g, "http", "kubernetes.io/h2c", "kubernetes.io/wss", "HTTPS", "mysql")),
			})
		}
	}
	if g.IntN(10) == 0 {
		o.Spec.Type = corev1.ServiceTypeExternalName
	}
	if g.IntN(5) == 0 {
		o.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return o
}

func (g *generator) slice(m metav1.ObjectMeta) *discoveryv1.EndpointSlice {
	m.Labels = map[string]string{discoveryv1.LabelServiceName: pick(g, "one", "two", "three", "")}
	o := &discoveryv1.EndpointSlice{ObjectMeta: m}
	for _, n := range []string{"http", "web", ""} {
		if g.IntN(2) == 0 {
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: maybe(g, n), Port: maybe(g, int32(9000+g.IntN(2)))})
		}
	}
	for range g.IntN(3) {
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{pick(g, "10.0.0.1", "10.0.0.2", "fd00::1", "nonsense")},
			Conditions: discoveryv1.EndpointConditions{Ready: maybe(g, g.IntN(2) == 0), Serving: maybe(g, g.IntN(2) == 0), Terminating: maybe(g, g.IntN(2) == 0)},
		})
	}
	return o
}

// copyOf is an equal object that shares nothing.
func copyOf(o object.Object) object.Object {
	var c runtime.Object = o.DeepCopyObject()
	return c.(object.Object)
}

func shuffled[T any](g *generator, list []T) []T {
	list = slices.Clone(list)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list
}
