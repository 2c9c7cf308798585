package code

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// The codes of what is found by lints of routes, beside conditions.
const (
	Nowhere      ID = "AET2006"
	Isolated     ID = "AET2007"
	Shadowed     ID = "AET2009"
	NoPermission ID = "AET2102"
	NoWeight     ID = "AET2108"
)

func routes() []Code {
	const accepted, resolved, partially = "Accepted", "ResolvedRefs", "PartiallyInvalid"
	route := object.HTTPRoute
	return []Code{
		{
			ID: "AET2001", Severity: Error, Title: "a route names a listener that its parent does not have",
			Meaning: "Neither sectionName nor port of the parentRef fits a listener of the Gateway or ListenerSet. The route is not served there.",
			Mend:    "Correct sectionName or port, or leave them out to attach to every listener.",
			From:    []Condition{{route, accepted, string(gatewayv1.RouteReasonNoMatchingParent)}},
		},
		{
			ID: "AET2002", Severity: Error, Title: "no listener allows the route",
			Meaning: "allowedRoutes of the listeners does not allow HTTPRoutes of the route's namespace; by default only routes of the Gateway's own namespace may attach.",
			Mend:    "Allow the namespace in allowedRoutes.namespaces of a listener (from: All, or a Selector that its labels fit), or move the route.",
			From:    []Condition{{route, accepted, string(gatewayv1.RouteReasonNotAllowedByListeners)}},
		},
		{
			ID: "AET2003", Severity: Error, Title: "no hostname of a route fits a listener",
			Meaning: "A route is served for the hosts that it and a listener have in common; here there are none.",
			Mend:    "Correct the hostnames of the route or of the listener.",
			From:    []Condition{{route, accepted, string(gatewayv1.RouteReasonNoMatchingListenerHostname)}},
		},
		{
			ID: "AET2004", Severity: Error, Title: "a rule asks for something that is not supported",
			Meaning: "A rule that cannot be served as it is written answers 500, so that its requests do not go to a rule that was not meant for them. Of a match that is not understood nobody can say which requests those are: it matches nothing, and they go where the next match sends them, or get 404. If no rule can be served the route is not accepted.",
			Mend:    "Take out or correct what is named.",
			From: []Condition{
				{route, accepted, string(gatewayv1.RouteReasonUnsupportedValue)},
				{route, partially, string(gatewayv1.RouteReasonUnsupportedValue)},
				{route, partially, ""},
			},
		},
		{
			ID: "AET2005", Severity: Error, Title: "filters of a rule cannot be combined",
			Meaning: "A redirect goes to no backend, so it cannot be combined with a rewrite, a mirror or backendRefs. The rule answers 500.",
			Mend:    "Keep one of them, or make two rules.",
			From: []Condition{
				{route, accepted, string(gatewayv1.RouteReasonIncompatibleFilters)}, {route, partially, string(gatewayv1.RouteReasonIncompatibleFilters)},
			},
		},
		{
			ID: Nowhere, Severity: Warning, Title: "a route attaches to nothing of Aether's",
			Meaning: "It has no parentRef that leads to a Gateway, or a ListenerSet on one, whose class is Aether's. Nobody writes a status of it, and nothing of it is served. Where everything that there is, is given, a parent that is not there is an error.",
			Mend:    "Correct name, namespace and kind of the parentRef; the namespace is the route's own if it is left out.",
		},
		{
			ID: Isolated, Severity: Info, Title: "hosts of a route are served by a more specific listener",
			Meaning: "Requests go to the listener of the port with the most specific hostname, and only routes of that one see them (listener isolation).",
			Mend:    "Attach the route to the more specific listener too, if those requests are meant for it.",
		},
		{
			ID: "AET2008", Severity: Error, Title: "shared proxies have no room for a route",
			Meaning: "The routes of a namespace may take a part of each shared proxy's memory, so that none takes the proxies from all others. With the older routes of its namespace this one takes more: it is not served, as if it were not there. What an analysis goes by is the default.",
			Mend:    "Use fewer hostnames, matches, regular expressions, backends and authorities of backends; delete routes that are not needed; attach the route to a Gateway with proxies of its own (mode: Dedicated); or have the installation's sharedProxy.memoryPerNamespace raised.",
			From:    []Condition{{route, accepted, "TooMuchForSharedProxies"}},
		},
		{
			ID: Shadowed, Severity: Warning, Title: "a match gets no request, since an equal one is tried first",
			Meaning: "Of matches that ask the same of a request for the same host the one of the older HTTPRoute is tried first, then the one of the first by namespace and name, then the first in the route. The others get no request there, though their route is accepted and programmed: no condition of the Gateway API says this.",
			Mend:    "Take one of them out, or make them differ: by path, method, header, query parameter or hostname. To divide requests give one rule both backends, with weights.",
		},
		{
			ID: "AET2101", Severity: Error, Title: "a backend does not exist",
			Meaning: "There is no such Service, or it has no such TCP port, or the backendRef has no port. Its share of the requests is answered with 500.",
			Mend:    "Correct name, namespace or port of the backendRef.",
			From:    []Condition{{route, resolved, string(gatewayv1.RouteReasonBackendNotFound)}},
		},
		{
			ID: NoPermission, Severity: Error, Title: "a route refers to another namespace without a ReferenceGrant",
			Meaning: "A Service of another namespace may be used only if a ReferenceGrant there allows it. Its share of the requests is answered with 500.",
			Mend:    "Add a ReferenceGrant in the namespace of the Service, from HTTPRoute of the route's namespace to Service.",
			From:    []Condition{{route, resolved, string(gatewayv1.RouteReasonRefNotPermitted)}},
		},
		{
			ID: "AET2103", Severity: Error, Title: "a backend or a filter is of a kind that is not supported",
			Meaning: "Backends are Services that are not of type ExternalName; no filter by extensionRef is known. What refers to anything else is answered with 500.",
			Mend:    "Refer to a Service, and for what is outside the cluster to one with an EndpointSlice of its own.",
			From:    []Condition{{route, resolved, string(gatewayv1.RouteReasonInvalidKind)}},
		},
		{
			ID: "AET2104", Severity: Error, Title: "a backend speaks a protocol that is not supported",
			Meaning: "The appProtocol of the Service's port is not known, or is spoken over TLS for which it has no BackendTLSPolicy. Its share of the requests is answered with 500.",
			Mend:    "Use kubernetes.io/h2c, kubernetes.io/ws, http or none; for https and kubernetes.io/wss add a BackendTLSPolicy.",
			From:    []Condition{{route, resolved, string(gatewayv1.RouteReasonUnsupportedProtocol)}},
		},
		{
			ID: "AET2105", Severity: Error, Title: "the BackendTLSPolicy of a backend is not good",
			Meaning: "What was to be protected by TLS is never sent in plaintext instead: requests to the backend are answered with 500.",
			Mend:    "Mend the policy, which has a finding of its own.",
			From:    []Condition{{route, resolved, "InvalidBackendTLSPolicy"}},
		},
		{
			ID: "AET2106", Severity: Warning, Title: "a backend has no endpoint",
			Meaning: "Nobody is behind the Service's port: what is sent to it is answered with 503.",
			Mend:    "Look whether its pods are ready and the selector fits them. A Service without a selector needs an EndpointSlice.",
			From:    []Condition{{route, "config.aether.io/Endpoints", ""}},
		},
		{
			ID: NoWeight, Severity: Warning, Title: "all backends of a rule have weight 0",
			Meaning: "Requests that the rule matches are answered with 500.",
			Mend:    "Give one backend a weight above 0, or take the rule out.",
			From:    []Condition{{route, "config.aether.io/Endpoints", "NoWeight"}},
		},
	}
}
