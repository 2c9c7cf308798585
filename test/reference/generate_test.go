package reference_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/test/reference"
)

const (
	controller  = "config.aether.io/gateway-controller"
	release     = "aether-system"
	pool        = "backends" // the namespace of the backends that all sets share
	backends    = 40         // b0, b1 …; each rule of a set has its own
	misdirected = true       // requests to another host than that of the handshake
	portsOf     = 4          // of a set: two HTTP, one HTTPS, one HTTP of the second Gateway
)

// site is where a set lives: what may be different while the set is the same.
type site struct {
	prefix string // of its namespaces; they sort alike for all prefixes
	class  string
	port   int32 // the first of its ports
}

// generator makes a set out of few names, so that its parts collide.
type generator struct {
	*rand.Rand
	site
	next  int      // backend
	ports []int32  // of listeners, with the set's first as 0
	hosts []string // that listeners and routes name
	paths []string // that routes name
}

func pick[T any](g *generator, list ...T) T { return list[g.IntN(len(list))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

func maybe[T any](g *generator, percent int, v T) *T {
	if !g.chance(percent) {
		return nil
	}
	return &v
}

// namespaces of a set. "a-b/x" stands before "a/x", and "a" before "a-b".
func (s site) namespaces() []string {
	return []string{s.prefix + "a", s.prefix + "a-b", s.prefix + "b"}
}

func (g *generator) namespace() string { return pick(g, g.namespaces()...) }

// generate makes the objects and the requests of a seed, at a site.
func generate(seed uint64, at site) ([]object.Object, []reference.Request) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), site: at}
	objects := make([]object.Object, 0, 16)
	for _, ns := range g.namespaces() {
		o := &corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta("", ns)}
		o.Labels = map[string]string{"team": pick(g, "red", "blue")}
		objects = append(objects, o)
	}
	objects = append(objects, g.gateway(0, 1+g.IntN(5), 0, 0, 0, 1, 2, 2), g.gateway(1, 1+g.IntN(3), 3, 3, 3, 3, 1))
	for i := range pick(g, 0, 0, 1, 2) {
		objects = append(objects, g.listenerSet(i))
	}
	for i := range 2 + g.IntN(6) {
		objects = append(objects, g.route(i))
	}
	objects = append(objects, grant(at, g.chance(90)))
	requests := make([]reference.Request, 0, 80)
	for range cap(requests) {
		requests = append(requests, g.request())
	}
	return objects, requests
}

func kind(version, name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: version, Kind: name}
}

const gatewayAPI = "gateway.networking.k8s.io/v1"

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1, CreationTimestamp: metav1.Unix(1700000000, 0)}
}

// gateway has up to n listeners, on random ones of the set's ports.
func (g *generator) gateway(namespace, n int, ports ...int32) *gatewayv1.Gateway {
	o := &gatewayv1.Gateway{TypeMeta: kind(gatewayAPI, "Gateway"), ObjectMeta: meta(g.namespaces()[namespace], "web")}
	o.CreationTimestamp = metav1.Unix(1700000000+int64(g.IntN(2)), 0)
	o.Spec.GatewayClassName = gatewayv1.ObjectName(g.class)
	o.Spec.Listeners = g.listeners(n, ports...)
	if g.chance(80) {
		o.Spec.AllowedListeners = &gatewayv1.AllowedListeners{Namespaces: &gatewayv1.ListenerNamespaces{From: new(pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector))}}
		o.Spec.AllowedListeners.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
	}
	return o
}

// listenerSet adds to one of the Gateways.
func (g *generator) listenerSet(i int) *gatewayv1.ListenerSet {
	o := &gatewayv1.ListenerSet{TypeMeta: kind(gatewayAPI, "ListenerSet"), ObjectMeta: meta(g.namespace(), fmt.Sprint("set", i))}
	o.CreationTimestamp = metav1.Unix(1700000000+int64(g.IntN(2)), 0)
	o.Spec.ParentRef = gatewayv1.ParentGatewayReference{Name: "web", Namespace: new(gatewayv1.Namespace(g.namespaces()[g.IntN(2)]))}
	for _, l := range g.listeners(1+g.IntN(3), 0, 0, 1, 2, 3) {
		o.Spec.Listeners = append(o.Spec.Listeners, gatewayv1.ListenerEntry(l))
	}
	return o
}

func (g *generator) listeners(n int, ports ...int32) (list []gatewayv1.Listener) {
	taken := map[string]bool{}
	for i := range n {
		port := pick(g, ports...)
		l := gatewayv1.Listener{Name: gatewayv1.SectionName(fmt.Sprint("l", i)), Port: g.port + port, Protocol: gatewayv1.HTTPProtocolType}
		if port == 2 && !g.chance(3) {
			l.Protocol = gatewayv1.HTTPSProtocolType
			l.TLS = &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "cert", Namespace: new(gatewayv1.Namespace(pool))}}}
		}
		if g.chance(70) {
			l.Hostname = new(gatewayv1.Hostname(pick(g, "a.test", "*.test", "*.a.test", "b.a.test", "*.b.a.test", "c.test")))
		}
		unique := fmt.Sprint(port, l.Protocol)
		if l.Hostname != nil {
			unique += string(*l.Hostname)
		}
		if taken[unique] {
			continue
		}
		taken[unique] = true
		g.ports = append(g.ports, port)
		g.name(l.Hostname)
		l.AllowedRoutes = &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{
			From: new(pick(g, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromAll, gatewayv1.NamespacesFromSame, gatewayv1.NamespacesFromSelector)),
		}}
		if *l.AllowedRoutes.Namespaces.From == gatewayv1.NamespacesFromSelector {
			l.AllowedRoutes.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "red"}}
		}
		switch g.IntN(30) {
		case 0:
			l.AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: "HTTPRoute"}}
		case 1:
			l.AllowedRoutes.Kinds = []gatewayv1.RouteGroupKind{{Kind: "TCPRoute"}}
		default:
		}
		list = append(list, l)
	}
	return list
}

// name keeps a host name for requests.
func (g *generator) name(h *gatewayv1.Hostname) {
	if h != nil {
		g.hosts = append(g.hosts, strings.Replace(string(*h), "*", pick(g, "x", "z", "x.b", "a"), 1))
	}
}

func (g *generator) route(i int) *gatewayv1.HTTPRoute {
	o := &gatewayv1.HTTPRoute{TypeMeta: kind(gatewayAPI, "HTTPRoute"), ObjectMeta: meta(g.namespace(), fmt.Sprint("r", i))}
	o.CreationTimestamp = metav1.Unix(1700000000+int64(g.IntN(3)), 0)
	both := g.IntN(10)
	if both < 9 {
		o.Spec.ParentRefs = append(o.Spec.ParentRefs, g.parent(0))
	}
	if both > 6 {
		o.Spec.ParentRefs = append(o.Spec.ParentRefs, g.parent(1))
	}
	if g.chance(40) {
		ref := g.parent(g.IntN(len(g.namespaces())))
		ref.Kind, ref.Name = new(gatewayv1.Kind("ListenerSet")), gatewayv1.ObjectName(fmt.Sprint("set", g.IntN(2)))
		o.Spec.ParentRefs = append(o.Spec.ParentRefs, ref)
	}
	for range pick(g, 0, 0, 1, 1, 2, 3) {
		h := gatewayv1.Hostname(pick(g, "a.test", "a.test", "*.test", "*.a.test", "b.a.test", "*.b.a.test", "c.test", "example.org"))
		if !slices.Contains(o.Spec.Hostnames, h) {
			o.Spec.Hostnames = append(o.Spec.Hostnames, h)
			g.name(&h)
		}
	}
	for range 1 + g.IntN(4) {
		o.Spec.Rules = append(o.Spec.Rules, g.rule())
	}
	return o
}

func (g *generator) parent(namespace int) gatewayv1.ParentReference {
	ref := gatewayv1.ParentReference{Name: "web", Namespace: new(gatewayv1.Namespace(g.namespaces()[namespace]))}
	if g.chance(20) {
		ref.SectionName = new(gatewayv1.SectionName(fmt.Sprint("l", g.IntN(4))))
	}
	if g.chance(10) {
		ref.Port = new(g.port + g.Int32N(portsOf))
	}
	return ref
}

func (g *generator) rule() (rule gatewayv1.HTTPRouteRule) {
	for range pick(g, 0, 1, 1, 1, 2, 3, 4) {
		rule.Matches = append(rule.Matches, g.match())
	}
	for range pick(g, 1, 1, 1, 1, 1, 2, 2, 0) {
		ref := gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprint("b", g.next%backends)), Namespace: new(gatewayv1.Namespace(pool)), Port: new(int32(80))}
		g.next++
		switch g.IntN(30) {
		case 0:
			ref.Name = "missing"
		case 1:
			ref.Name = "empty"
		case 2:
			ref.Port = new(int32(81))
		case 3:
			ref.Namespace = nil
		case 4:
			ref.Group, ref.Kind = new(gatewayv1.Group("example.com")), new(gatewayv1.Kind("Bucket"))
		default:
		}
		rule.BackendRefs = append(rule.BackendRefs, gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{
			BackendObjectReference: ref, Weight: maybe(g, 30, pick(g, int32(0), 1, 5)),
		}})
	}
	return rule
}

func (g *generator) match() (m gatewayv1.HTTPRouteMatch) {
	if g.chance(85) {
		m.Path = &gatewayv1.HTTPPathMatch{Type: new(pick(g, gatewayv1.PathMatchExact, gatewayv1.PathMatchPathPrefix, gatewayv1.PathMatchPathPrefix))}
		m.Path.Value = new(pick(g, "/", "/", "/", "/a", "/a", "/a", "/a/", "/a/b", "/a/b/", "/ab", "/A", "/a.b", "/a%20b", "/a/b/c", "/%61", "/a/%62", "/a%c3%A9", "/x/%2e%2e/a"))
		g.paths = append(g.paths, *m.Path.Value)
		if g.chance(25) {
			m.Path.Type = new(gatewayv1.PathMatchRegularExpression)
			m.Path.Value = new(pick(g, ".*", "/a", "/a.*", "/a|/b", "/a/[^/]+", "/(a|ab)/?", "(?i)/a", "/.*b", "/a\\.b"))
		}
	}
	m.Method = maybe(g, 15, pick(g, gatewayv1.HTTPMethodGet, gatewayv1.HTTPMethodPost, gatewayv1.HTTPMethodHead, gatewayv1.HTTPMethodOptions))
	for range pick(g, 0, 0, 0, 0, 0, 1, 1, 2, 3) {
		h := gatewayv1.HTTPHeaderMatch{Name: pick[gatewayv1.HTTPHeaderName](g, "X-One", "X-one", "x-one", "X-Two", "x-two", "Host"), Value: pick(g, "1", "2", "1,2", "a.test")}
		if g.chance(30) {
			h.Type, h.Value = new(gatewayv1.HeaderMatchRegularExpression), pick(g, "[12]", "1|2", "1.*", ".*")
		}
		if !slices.ContainsFunc(m.Headers, func(o gatewayv1.HTTPHeaderMatch) bool { return o.Name == h.Name }) {
			m.Headers = append(m.Headers, h)
		}
	}
	for range pick(g, 0, 0, 0, 0, 0, 0, 1, 1, 2) {
		q := gatewayv1.HTTPQueryParamMatch{Name: pick[gatewayv1.HTTPHeaderName](g, "q", "Q", "r"), Value: pick(g, "1", "2", "a%20b", "a=b")}
		if g.chance(30) {
			q.Type, q.Value = new(gatewayv1.QueryParamMatchRegularExpression), pick(g, "[12]", "1|2", ".*", "1.+")
		}
		if !slices.ContainsFunc(m.QueryParams, func(o gatewayv1.HTTPQueryParamMatch) bool { return o.Name == q.Name }) {
			m.QueryParams = append(m.QueryParams, q)
		}
	}
	return m
}

func (g *generator) request() reference.Request {
	r := reference.Request{
		Port:   g.port + pick(g, append(g.ports, 0, 1, 2, 3)...),
		Method: pick(g, "GET", "GET", "GET", "POST", "HEAD", "OPTIONS", "PUT"),
		Target: pick(g, "/", "/a", "/a", "/a/", "/a/b", "/a/b/", "/a/b/c", "/ab", "/abc", "/A", "/a.b", "/aXb", "/b", "/a%20b", "/%61/b", "/a%C3%a9", "/a%c3%a9/x",
			"/./a", "/x/../a", "/a/..", "/a/.", "/a/%2e%2E/ab", "/..", "//a", "/a//b", "/a%2Fb", "/a/b/../../a"),
		Host: pick(g, "a.test", "a.test", "b.a.test", "x.a.test", "x.b.a.test", "c.test", "x.c.test", "z.test", "test", "example.org", "unknown.org", "xa.test"),
	}
	if len(g.paths) > 0 && g.chance(50) {
		r.Target = pick(g, g.paths...) + pick(g, "", "", "", "/", "/x", "x")
	}
	if len(g.hosts) > 0 && g.chance(80) {
		r.Host = pick(g, g.hosts...)
	}
	r.TLS = r.Port == g.port+2
	if r.TLS {
		r.SNI = r.Host
		if g.chance(30) {
			r.SNI = pick(g, "", "a.test", "b.a.test", "x.a.test", "c.test", "unknown.org")
		}
	}
	switch g.IntN(9) {
	case 8: // "its host counts"
		r.Target, r.Host = "http://"+r.Host+r.Target, "elsewhere.example"
	case 0:
		r.Host += ":80"
	case 1:
		r.Host += ":65535"
	case 2:
		r.Host = strings.ToUpper(r.Host)
	case 3:
		r.Host = strings.ToUpper(r.Host[:1]) + r.Host[1:] + ":8080"
	case 4:
		r.Host += "."
	default:
	}
	for range pick(g, 0, 0, 1, 1, 2, 3) {
		r.Headers = append(r.Headers, reference.Header{Name: pick(g, "X-One", "x-one", "X-ONE", "x-two"), Value: pick(g, "1", "2", "1,2", "12", "")})
	}
	var query []string
	for range pick(g, 0, 0, 1, 1, 2, 3) {
		query = append(query, pick(g, "q=1", "q=2", "Q=1", "r=1", "q", "q=", "=1", "", "q=a%20b", "q=a=b", "qq=1", "q=1&q=2", "r=12"))
	}
	if query != nil {
		r.Target += "?" + strings.Join(query, "&")
	}
	return r
}

// grant lets the routes of a set refer to the shared backends, and its Gateways to their
// certificate, or lets only the Gateways.
func grant(at site, services bool) *gatewayv1.ReferenceGrant {
	o := &gatewayv1.ReferenceGrant{TypeMeta: kind(gatewayAPI, "ReferenceGrant"), ObjectMeta: meta(pool, at.prefix)}
	for _, ns := range at.namespaces() {
		for _, k := range []gatewayv1.Kind{"Gateway", "HTTPRoute", "ListenerSet"} {
			o.Spec.From = append(o.Spec.From, gatewayv1.ReferenceGrantFrom{Group: gatewayv1.GroupName, Kind: k, Namespace: gatewayv1.Namespace(ns)})
		}
	}
	o.Spec.To = []gatewayv1.ReferenceGrantTo{{Kind: "Secret"}, {Kind: "Service"}}
	if !services {
		o.Spec.To = []gatewayv1.ReferenceGrantTo{{Kind: "Secret"}, {Kind: "Service", Name: new(gatewayv1.ObjectName("b1"))}}
	}
	return o
}

// world is what all sets share: classes that pin how routes are cut, the backends, a certificate.
func world(addresses []string, port int32, cert, key []byte) []object.Object {
	out := []object.Object{
		&corev1.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: meta("", pool)},
		&corev1.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: meta(pool, "cert"), Type: corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: cert, corev1.TLSPrivateKeyKey: key}},
	}
	for _, mode := range []configv1.RouteScopes{configv1.RouteScopesSingle, configv1.RouteScopesPerHost} {
		name := strings.ToLower(string(mode))
		out = append(out,
			&configv1.GatewayParameters{TypeMeta: kind("config.aether.io/v1", "GatewayParameters"), ObjectMeta: meta(release, name), Spec: configv1.GatewayParametersSpec{RouteScopes: &mode}},
			&gatewayv1.GatewayClass{TypeMeta: kind(gatewayAPI, "GatewayClass"), ObjectMeta: meta("", name), Spec: gatewayv1.GatewayClassSpec{
				ControllerName: controller,
				ParametersRef:  &gatewayv1.ParametersReference{Group: configv1.GroupName, Kind: "GatewayParameters", Name: name, Namespace: new(gatewayv1.Namespace(release))},
			}})
	}
	for i, address := range append(addresses, "") {
		name := fmt.Sprint("b", i)
		slice := &discoveryv1.EndpointSlice{TypeMeta: kind("discovery.k8s.io/v1", "EndpointSlice"), ObjectMeta: meta(pool, name), AddressType: discoveryv1.AddressTypeIPv4}
		slice.Ports = []discoveryv1.EndpointPort{{Name: new(""), Port: &port, Protocol: new(corev1.ProtocolTCP)}}
		if address == "" {
			name = "empty"
		} else {
			slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
		}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		out = append(out, slice, &corev1.Service{TypeMeta: kind("v1", "Service"), ObjectMeta: meta(pool, name), Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(port)}},
		}})
	}
	return out
}
