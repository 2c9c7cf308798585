package routing

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
)

func newReader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }

// describe is a replica in words.
func (r *replica) describe() string {
	statuses, worlds := map[string]any{}, map[string]any{}
	for k, s := range r.statuses {
		statuses[k.String()] = describeStatus(s)
	}
	for s, w := range r.worlds {
		world := map[string]any{}
		for n, res := range w {
			kind, name, _ := strings.Cut(n.String(), " ")
			if world[kind] == nil {
				world[kind] = map[string]any{}
			}
			world[kind].(map[string]any)[name] = describeResource(res)
		}
		worlds[s.String()] = world
	}
	var b strings.Builder
	b.WriteString("---")
	render(&b, "", map[string]any{"statuses": statuses, "worlds": worlds})
	return strings.Replace(b.String(), "---", "---\n", 1)
}

func describeStatus(s Status) any {
	out := map[string]any{}
	var live []any
	for _, r := range s.Live {
		of := fmt.Sprintf("%s, port %d", r.Section, r.Port)
		if _, is := s.Value.(*gatewayv1.HTTPRouteStatus); is {
			of = fmt.Sprintf("parent %d", r.Parent)
		}
		var names []string
		for _, n := range r.Resources {
			names = append(names, n.String())
		}
		live = append(live, strings.TrimPrefix(fmt.Sprintf("%s in %s: %s", of, r.Scope, strings.Join(names, "; ")), ", port 0 "))
	}
	if live != nil {
		out["live"] = live
	}
	switch v := s.Value.(type) {
	case *gatewayv1.GatewayClassStatus:
		out["conditions"] = describeConditions(s.Generation, v.Conditions)
	case *gatewayv1.GatewayStatus:
		out["conditions"] = describeConditions(s.Generation, v.Conditions)
		addresses := []any{}
		for _, a := range v.Addresses {
			addresses = append(addresses, string(*a.Type)+" "+a.Value)
		}
		out["addresses"] = addresses
		listeners := map[string]any{}
		for _, l := range v.Listeners {
			listeners[string(l.Name)] = describeListener(s.Generation, l)
		}
		out["listeners"] = listeners
		if n := *v.AttachedListenerSets; n > 0 {
			out["attachedListenerSets"] = n
		}
	case *gatewayv1.ListenerSetStatus:
		out["conditions"] = describeConditions(s.Generation, v.Conditions)
		listeners := map[string]any{}
		for _, l := range v.Listeners {
			listeners[string(l.Name)] = describeListener(s.Generation, gatewayv1.ListenerStatus(l))
		}
		out["listeners"] = listeners
	case *gatewayv1.HTTPRouteStatus:
		parents := map[string]any{}
		for i, p := range v.Parents {
			to := fmt.Sprintf("%d to %s", i, p.ParentRef.Name)
			if p.ParentRef.Kind != nil && *p.ParentRef.Kind != "Gateway" {
				to = fmt.Sprintf("%d to %s %s", i, *p.ParentRef.Kind, p.ParentRef.Name)
			}
			if p.ParentRef.SectionName != nil {
				to += "/" + string(*p.ParentRef.SectionName)
			}
			parents[to] = describeConditions(s.Generation, p.Conditions)
		}
		out["parents"] = parents
	case *gatewayv1.PolicyStatus:
		ancestors := map[string]any{}
		for _, a := range v.Ancestors {
			ancestors[fmt.Sprintf("%s %s/%s", *a.AncestorRef.Kind, *a.AncestorRef.Namespace, a.AncestorRef.Name)] = describeConditions(s.Generation, a.Conditions)
		}
		out["ancestors"] = ancestors
	case *configv1.MeshConfigStatus:
		out["conditions"] = describeConditions(s.Generation, v.Conditions)
		e := v.Effective.Proxy
		out["effective"] = fmt.Sprintf("logs %v by %s, success %d%% by %s", e.AccessLogsEnabled.Value, e.AccessLogsEnabled.From, e.AccessLogSuccessSampleRate.Value, e.AccessLogSuccessSampleRate.From)
	}
	return out
}

func describeListener(generation int64, l gatewayv1.ListenerStatus) any {
	kinds := []any{}
	for _, k := range l.SupportedKinds {
		kinds = append(kinds, string(k.Kind))
	}
	return map[string]any{"attachedRoutes": l.AttachedRoutes, "supportedKinds": kinds, "conditions": describeConditions(generation, l.Conditions)}
}

// describeConditions leaves out what is as it should be but for its name, and the
// generation, which must be right everywhere.
func describeConditions(generation int64, list []metav1.Condition) []any {
	out := []any{}
	for _, c := range list {
		of := ""
		if c.ObservedGeneration != generation {
			of = fmt.Sprintf(" (of generation %d, not %d)", c.ObservedGeneration, generation)
		}
		switch {
		case c.Type == string(gatewayv1.ListenerConditionConflicted) && c.Status == metav1.ConditionFalse && of == "":
		case c.Reason == c.Type && c.Status == metav1.ConditionTrue && c.Type != configv1.MeshConfigUnknownFields && !strings.Contains(c.Message, "; "), c.Reason == "Pending":
			out = append(out, fmt.Sprintf("%s=%s%s", c.Type, c.Status, of))
		default:
			out = append(out, fmt.Sprintf("%s=%s %s%s: %s", c.Type, c.Status, c.Reason, of, c.Message))
		}
	}
	return out
}

// render writes maps, lists and texts as YAML without breaking lines.
func render(b *strings.Builder, indent string, v any) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			b.WriteString(" {}\n")
			return
		}
		if indent != "" {
			b.WriteString("\n")
		}
		for _, k := range slices.Sorted(maps.Keys(v)) {
			name := k
			if strings.ContainsAny(k, "*|: ") {
				name = fmt.Sprintf("%q", k)
			}
			b.WriteString(indent + name + ":")
			render(b, indent+"  ", v[k])
		}
	case []any:
		if len(v) == 0 {
			b.WriteString(" []\n")
			return
		}
		b.WriteString("\n")
		for _, e := range v {
			b.WriteString(indent + "-")
			render(b, indent+"  ", e)
		}
	case string:
		fmt.Fprintf(b, " %q\n", v)
	default:
		fmt.Fprintf(b, " %v\n", v)
	}
}

func describeResource(r *resource.Resource) any {
	decode := func(m proto.Message) {
		if err := proto.Unmarshal(r.Payload, m); err != nil {
			panic(err)
		}
	}
	switch r.TypeURL {
	case envoy.ListenerType:
		var m listenerv3.Listener
		decode(&m)
		address := m.GetAddress().GetSocketAddress()
		out := []any{fmt.Sprintf("binds %s:%d", address.GetAddress(), address.GetPortValue())}
		for _, c := range m.GetFilterChains() {
			by := "plain"
			if match := c.GetFilterChainMatch(); match != nil {
				by = fmt.Sprintf("%s %v", match.GetTransportProtocol(), match.GetServerNames())
			}
			for _, r := range c.GetFilterChainMatch().GetDirectSourcePrefixRanges() {
				by += fmt.Sprintf(" of %s/%d", r.GetAddressPrefix(), r.GetPrefixLen().GetValue())
			}
			out = append(out, fmt.Sprintf("table %s by %s%s", c.GetName(), by, describeClients(c)))
		}
		return out
	case envoy.ClusterType:
		var m clusterv3.Cluster
		decode(&m)
		if m.GetTransportSocket() != nil {
			return describeTLS(r, &m)
		}
	case envoy.EndpointType:
		var m endpointv3.ClusterLoadAssignment
		decode(&m)
		out := []any{}
		for _, l := range m.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				a := e.GetEndpoint().GetAddress().GetSocketAddress()
				out = append(out, fmt.Sprintf("%s port %d", a.GetAddress(), a.GetPortValue()))
			}
		}
		return out
	case envoy.ScopedRouteType:
		var m routev3.ScopedRouteConfiguration
		decode(&m)
		hosts := map[string]any{}
		for _, v := range m.GetRouteConfiguration().GetVirtualHosts() {
			routes := []any{}
			last := len(v.GetRoutes()) - 1
			for _, route := range v.GetRoutes()[:last] {
				routes = append(routes, describeRoute(route))
			}
			if status := v.GetRoutes()[last].GetDirectResponse().GetStatus(); status != 404 { // which is how all others end
				routes = append(routes, fmt.Sprintf("else %d", status))
			}
			for _, host := range v.GetDomains() {
				if !strings.HasSuffix(host, ".") { // each is there with a dot at the end too
					hosts[host] = routes
				}
			}
		}
		return hosts
	case envoy.RuntimeType:
		var m runtimev3.Runtime
		decode(&m)
		return m.GetLayer().AsMap()
	}
	return originOf(r)
}

func describeTLS(r *resource.Resource, m *clusterv3.Cluster) string {
	var t tlsv3.UpstreamTlsContext
	if err := m.GetTransportSocket().GetTypedConfig().UnmarshalTo(&t); err != nil {
		panic(err)
	}
	common := t.GetCommonTlsContext()
	validation, trust := common.GetValidationContext(), common.GetValidationContext().GetTrustedCa().GetFilename()
	if combined := common.GetCombinedValidationContext(); combined != nil {
		validation, trust = combined.GetDefaultValidationContext(), combined.GetValidationContextSdsSecretConfig().GetName()
	}
	var names []string
	for _, n := range validation.GetMatchTypedSubjectAltNames() {
		names = append(names, fmt.Sprintf("%s %s%s", n.GetSanType(), n.GetMatcher().GetExact(), n.GetMatcher().GetSuffix()))
	}
	shows := ""
	for _, s := range common.GetTlsCertificateSdsSecretConfigs() {
		shows += ", shows " + s.GetName()
	}
	return fmt.Sprintf("%s; TLS asks for %s by %s, wants %s, believes %s%s",
		originOf(r), t.GetSni(), strings.Join(common.GetAlpnProtocols(), " "), strings.Join(names, " or "), trust, shows)
}

// describeClients is what is not the default of a chain that terminates TLS.
func describeClients(c *listenerv3.FilterChain) string {
	var m tlsv3.DownstreamTlsContext
	if c.GetTransportSocket() == nil {
		return ""
	}
	if err := c.GetTransportSocket().GetTypedConfig().UnmarshalTo(&m); err != nil {
		panic(err)
	}
	out := ""
	if v := m.GetCommonTlsContext().GetTlsParams().GetTlsMinimumProtocolVersion(); v != tlsv3.TlsParameters_TLSv1_2 {
		out += ", from " + v.String()
	}
	if s := m.GetCommonTlsContext().GetValidationContextSdsSecretConfig(); s != nil {
		out += fmt.Sprintf(", clients by %s, required %v", s.GetName(), m.GetRequireClientCertificate().GetValue())
	}
	if s := m.GetCommonTlsContext().GetCombinedValidationContext(); s != nil {
		out += fmt.Sprintf(", clients by %s, required %v, %s", s.GetValidationContextSdsSecretConfig().GetName(), m.GetRequireClientCertificate().GetValue(), s.GetDefaultValidationContext().GetTrustChainVerification())
	}
	return out
}

func originOf(r *resource.Resource) string {
	var list []string
	for _, k := range r.Origin {
		list = append(list, k.String())
	}
	return "from " + strings.Join(list, ", ")
}

func describeRoute(r *routev3.Route) string {
	var b strings.Builder
	m := r.GetMatch()
	fmt.Fprintf(&b, "%s: ", r.GetName())
	switch {
	case m.GetPath() != "":
		b.WriteString("exact " + m.GetPath())
	case m.GetSafeRegex() != nil:
		b.WriteString("regex " + m.GetSafeRegex().GetRegex())
	default:
		b.WriteString("prefix " + m.GetPrefix() + m.GetPathSeparatedPrefix())
	}
	for _, h := range m.GetHeaders() {
		is := "="
		if h.GetInvertMatch() {
			is = "!="
		}
		fmt.Fprintf(&b, ", %s%s%s%s", h.GetName(), is, h.GetStringMatch().GetExact(), h.GetStringMatch().GetSafeRegex().GetRegex())
	}
	for _, q := range m.GetQueryParameters() {
		fmt.Fprintf(&b, ", ?%s=%s%s", q.GetName(), q.GetStringMatch().GetExact(), q.GetStringMatch().GetSafeRegex().GetRegex())
	}
	if below := m.GetRuntimeFraction(); below != nil {
		fmt.Fprintf(&b, ", below %d", below.GetDefaultValue().GetNumerator())
	}
	b.WriteString(" -> ")
	var to []string
	switch {
	case r.GetDirectResponse() != nil:
		to = append(to, fmt.Sprint(r.GetDirectResponse().GetStatus()))
	case r.GetRoute().GetCluster() != "":
		to = append(to, r.GetRoute().GetCluster())
	}
	for _, c := range r.GetRoute().GetWeightedClusters().GetClusters() {
		to = append(to, fmt.Sprintf("%s*%d", c.GetName(), c.GetWeight().GetValue())+
			describeHeaders(c.GetRequestHeadersToAdd(), c.GetRequestHeadersToRemove())+describeHeaders(c.GetResponseHeadersToAdd(), c.GetResponseHeadersToRemove()))
	}
	slices.Sort(to)
	b.WriteString(strings.Join(to, " "))
	describeAction(&b, r)
	return b.String()
}

// describeAction is what is done beside choosing a cluster.
func describeAction(b *strings.Builder, r *routev3.Route) {
	if d := r.GetRedirect(); d != nil {
		fmt.Fprintf(b, "redirect %s %s://%s:%d%s%s", d.GetResponseCode(), d.GetSchemeRedirect(), d.GetHostRedirect(), d.GetPortRedirect(), d.GetPathRedirect(), d.GetPrefixRewrite())
	}
	b.WriteString(describeHeaders(r.GetRequestHeadersToAdd(), r.GetRequestHeadersToRemove()))
	b.WriteString(describeHeaders(r.GetResponseHeadersToAdd(), r.GetResponseHeadersToRemove()))
	a := r.GetRoute()
	if a.GetHostRewriteLiteral() != "" {
		b.WriteString(", host " + a.GetHostRewriteLiteral())
	}
	if path := a.GetPrefixRewrite() + a.GetRegexRewrite().GetSubstitution(); path != "" {
		b.WriteString(", path " + path)
	}
	for _, m := range a.GetRequestMirrorPolicies() {
		fmt.Fprintf(b, ", mirrored to %s", m.GetCluster())
		if f := m.GetRuntimeFraction(); f != nil {
			fmt.Fprintf(b, " below %d", f.GetDefaultValue().GetNumerator())
		}
	}
	if d := a.GetTimeout().AsDuration(); d != 0 {
		fmt.Fprintf(b, ", within %s", d)
	}
	if len(r.GetTypedPerFilterConfig()) > 0 {
		b.WriteString(", CORS")
	}
}

func describeHeaders(put []*corev3.HeaderValueOption, remove []string) string {
	var list []string
	for _, h := range put {
		list = append(list, fmt.Sprintf("%s=%s", h.GetHeader().GetKey(), h.GetHeader().GetValue()))
	}
	for _, name := range remove {
		list = append(list, "-"+name)
	}
	if list == nil {
		return ""
	}
	return fmt.Sprintf(" %v", list)
}
