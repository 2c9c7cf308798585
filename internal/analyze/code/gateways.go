package code

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
)

// The codes of what is found by lints of classes, Gateways and listeners, beside conditions.
const (
	ClassGoes       ID = "AET1002"
	ClassUnused     ID = "AET1003"
	ClassMissing    ID = "AET1102"
	GatewayIdle     ID = "AET1107"
	NoRoutes        ID = "AET1211"
	CertificateSoon ID = "AET1212"
	CertificateDead ID = "AET1213"
	CertificateHost ID = "AET1214"
)

func gateways() []Code {
	const (
		accepted, resolved, programmed = "Accepted", "ResolvedRefs", "Programmed"
		conflicted, overlapping        = "Conflicted", "OverlappingTLSConfig"
	)
	insecure := string(gatewayv1.GatewayConditionInsecureFrontendValidationMode)
	return []Code{
		{
			ID: "AET1001", Severity: Error, Title: "the parameters of a GatewayClass cannot be used",
			Meaning: "Its parametersRef leads to no GatewayParameters of config.aether.io. None of its Gateways is accepted: they would be served by defaults that nobody asked for.",
			Mend:    "Name a GatewayParameters object that exists, with its namespace.",
			From:    []Condition{{object.GatewayClass, accepted, ""}},
		},
		{
			ID: ClassGoes, Severity: Warning, Title: "a GatewayClass is being deleted while Gateways use it",
			Meaning: "It and everything of its Gateways stay as they are until the last of them is gone, which the finalizer gateway-exists-finalizer.gateway.networking.k8s.io sees to. No new Gateway should be made with it.",
			Mend:    "Move its Gateways to another class, or delete them. A deletion cannot be taken back: make the class again once it is gone.",
			Scope:   Cluster,
		},
		{
			ID: ClassUnused, Severity: Info, Title: "no Gateway uses a GatewayClass",
			Meaning: "A class by itself serves nothing.",
			Mend:    "Nothing need be done.",
			Scope:   Complete,
		},
		{
			ID: "AET1101", Severity: Error, Title: "the parameters of a Gateway cannot be used",
			Meaning: "infrastructure.parametersRef leads to no GatewayParameters of config.aether.io in its namespace, or those of its class cannot be used. The Gateway is not accepted, or goes on as it was served last.",
			Mend:    "Name a GatewayParameters object that exists in the Gateway's namespace.",
			From:    []Condition{{object.Gateway, accepted, string(gatewayv1.GatewayReasonInvalidParameters)}},
		},
		{
			ID: ClassMissing, Severity: Error, Title: "the GatewayClass of a Gateway does not exist",
			Meaning: "Nobody serves the Gateway and nobody writes a status of it. A class that the chart makes is called coxswain unless a value says otherwise.",
			Mend:    "Correct gatewayClassName, or make the class.",
			Scope:   Complete,
		},
		{
			ID: "AET1103", Severity: Error, Title: "an address of a type that is not supported",
			Meaning: "A Gateway can ask for IP addresses only, and is not accepted.",
			Mend:    "Ask for an address of type IPAddress, or for none.",
			From:    []Condition{{object.Gateway, accepted, string(gatewayv1.GatewayReasonUnsupportedAddress)}},
		},
		{
			ID: "AET1104", Severity: Warning, Title: "a Gateway does not have the address that it asks for, or none yet",
			Meaning: "On a cluster its Service has not been given an address: the load balancer has none, is not there, or the address is taken. Proxies serve it all the same, at their internal ports.",
			Mend:    "Look at the Service in front of the Gateway: kubectl describe service. Without a load balancer use GatewayParameters with service.type ClusterIP.",
			Scope:   Cluster,
			From: []Condition{
				{object.Gateway, programmed, string(gatewayv1.GatewayReasonAddressNotUsable)},
				{object.Gateway, programmed, string(gatewayv1.GatewayReasonAddressNotAssigned)},
			},
		},
		{
			ID: "AET1105", Severity: Error, Title: "what a Gateway needs has the name of something else",
			Meaning: "The Service in front of it or the ServiceAccount of its own proxies would have a name that is too long or belongs to an older Gateway. Nothing of it is served.",
			Mend:    "Give the Gateway another, or a shorter, name.",
			From:    []Condition{{object.Gateway, programmed, string(gatewayv1.GatewayReasonInvalid)}},
			Scope:   Dedicated,
		},
		{
			ID: "AET1106", Severity: Warning, Title: "clients are served whether their certificate verifies or not",
			Meaning: "tls.frontend has mode AllowInsecureFallback: a client without a certificate, or with a wrong one, gets through to backends, which may take the check for done.",
			Mend:    "Use mode AllowValidOnly, unless a migration needs the fallback for a while.",
			From:    []Condition{{object.Gateway, insecure, ""}},
		},
		{
			ID: GatewayIdle, Severity: Warning, Title: "settings of a Gateway or of its parameters have no effect",
			Meaning: "What is named is asked for and is dropped: a field of podTemplate that is not on the allow list, drainSeconds on shared proxies, mode Dedicated where there is one proxy (standalone), a selector that selects nothing. Everything else is in effect.",
			Mend:    "Take the setting out, or move the Gateway to proxies of its own (mode Dedicated) if it is for those.",
		},
		{
			ID: "AET1109", Severity: Error, Title: "the certificate that a Gateway shows to backends cannot be used",
			Meaning: "tls.backend.clientCertificateRef leads to no Secret of type kubernetes.io/tls with a certificate and its key, or to one in another namespace that has no ReferenceGrant for it. Backends that ask for a certificate are not spoken to.",
			Mend:    "Name a good Secret, in the Gateway's namespace or with a ReferenceGrant in its own.",
			From:    []Condition{{object.Gateway, resolved, string(gatewayv1.GatewayReasonInvalidClientCertificateRef)}},
		},
		{
			ID: "AET1201", Severity: Error, Title: "a listener's protocol is not supported",
			Meaning: "HTTP and HTTPS are. The listener is not served; the others of the Gateway are.",
			Mend:    "Use protocol HTTP or HTTPS, or take the listener out.",
			From:    []Condition{{"", accepted, string(gatewayv1.ListenerReasonUnsupportedProtocol)}},
		},
		{
			ID: "AET1202", Severity: Error, Title: "a listener's port cannot be bound",
			Meaning: "Where nothing maps ports, an older Gateway has the port already, or it is no port with --port-offset added.",
			Mend:    "Use another port, or put the listeners on one Gateway.",
			From:    []Condition{{"", accepted, string(gatewayv1.ListenerReasonPortUnavailable)}},
			Scope:   Instance,
		},
		{
			ID: "AET1203", Severity: Error, Title: "a listener has a value that is not supported",
			Meaning: "A hostname that is none, a selector that cannot be read, TLS options, TLS mode Passthrough for HTTPS. Ignoring them could weaken what was meant, so the listener is not served.",
			Mend:    "Correct or remove the value that is named.",
			From: []Condition{
				{object.Gateway, accepted, string(gatewayv1.ListenerReasonUnsupportedValue)},
				{object.ListenerSet, accepted, string(gatewayv1.ListenerReasonUnsupportedValue)},
			},
		},
		{
			ID: "AET1204", Severity: Error, Title: "listeners are alike",
			Meaning: "Two listeners of one Gateway have the same port, protocol and hostname: none of the two is served. Between a Gateway and its ListenerSets the first has it.",
			Mend:    "Give one of them another port or hostname, or take it out.",
			From:    []Condition{{"", conflicted, string(gatewayv1.ListenerReasonHostnameConflict)}},
		},
		{
			ID: "AET1205", Severity: Error, Title: "listeners of different protocols share a port",
			Meaning: "HTTP and HTTPS cannot be on the same port of a Gateway: none of the listeners there is served.",
			Mend:    "Give one of them another port.",
			From:    []Condition{{"", conflicted, string(gatewayv1.ListenerReasonProtocolConflict)}},
		},
		{
			ID: "AET1206", Severity: Info, Title: "hostnames of HTTPS listeners overlap",
			Meaning: "A client may use a connection that it made for one host for another one, of a listener with another certificate; such a request is answered with 421, and the client makes a new connection.",
			Mend:    "Nothing need be done. Hosts that share a certificate are best served by one listener.",
			From:    []Condition{{"", overlapping, ""}},
		},
		{
			ID: "AET1207", Severity: Error, Title: "a listener's certificate cannot be used",
			Meaning: "certificateRefs leads to no Secret of type kubernetes.io/tls whose key is its certificate's. An HTTPS listener without any good certificate is not served.",
			Mend:    "Name a good Secret; kubectl create secret tls makes one of a certificate and its key.",
			From:    []Condition{{"", resolved, string(gatewayv1.ListenerReasonInvalidCertificateRef)}},
		},
		{
			ID: "AET1208", Severity: Error, Title: "a listener refers to another namespace without a ReferenceGrant",
			Meaning: "A Secret or ConfigMap of another namespace may be used only if a ReferenceGrant there allows it.",
			Mend:    "Add a ReferenceGrant in the namespace of the Secret, from Gateway (or ListenerSet) of the listener's namespace, or move the Secret.",
			From: []Condition{
				{object.Gateway, resolved, string(gatewayv1.ListenerReasonRefNotPermitted)},
				{object.ListenerSet, resolved, string(gatewayv1.ListenerReasonRefNotPermitted)},
			},
		},
		{
			ID: "AET1209", Severity: Error, Title: "a listener allows kinds of routes that are not supported",
			Meaning: "Only HTTPRoutes attach. If no other kind is allowed, no route attaches to the listener.",
			Mend:    "Allow HTTPRoute, or leave allowedRoutes.kinds out.",
			From:    []Condition{{"", resolved, string(gatewayv1.ListenerReasonInvalidRouteKinds)}},
		},
		{
			ID: "AET1210", Severity: Error, Title: "the authorities that a listener verifies clients by cannot be used",
			Meaning: "tls.frontend refers to no ConfigMap with certificates under ca.crt. If none of the references is good no client can be verified, and the HTTPS listeners of the port are not served.",
			Mend:    "Name a ConfigMap whose ca.crt has PEM certificates.",
			From: []Condition{
				{object.Gateway, resolved, string(gatewayv1.ListenerReasonInvalidCACertificateRef)},
				{object.Gateway, resolved, string(gatewayv1.ListenerReasonInvalidCACertificateKind)},
				{object.Gateway, accepted, string(gatewayv1.ListenerReasonNoValidCACertificate)},
				{object.ListenerSet, resolved, string(gatewayv1.ListenerReasonInvalidCACertificateRef)},
				{object.ListenerSet, resolved, string(gatewayv1.ListenerReasonInvalidCACertificateKind)},
				{object.ListenerSet, accepted, string(gatewayv1.ListenerReasonNoValidCACertificate)},
			},
		},
		{
			ID: NoRoutes, Severity: Warning, Title: "no route is attached to a listener",
			Meaning: "Whatever comes to it is answered with 404.",
			Mend:    "Attach an HTTPRoute whose hostnames are the listener's, or take the listener out. A route that does not attach as it should has a finding of its own.",
			Scope:   Complete,
		},
		{
			ID: CertificateSoon, Severity: Warning, Title: "a certificate that is used expires within 30 days",
			Meaning: "From that day on clients refuse the listener. Most issuers renew earlier than that, so the renewal may not work.",
			Mend:    "Renew the certificate and write it to the Secret: proxies take it without a restart.",
		},
		{
			ID: CertificateDead, Severity: Error, Title: "a certificate that is used has expired or is not valid yet",
			Meaning: "Clients refuse the listener. The controller does not look at dates, since it cannot do better than to serve what it is given.",
			Mend:    "Renew the certificate and write it to the Secret: proxies take it without a restart.",
		},
		{
			ID: CertificateHost, Severity: Warning, Title: "no certificate of a listener is for its hostname",
			Meaning: "Clients that ask for the hostname refuse the connection.",
			Mend:    "Add a certificate whose subject alternative names have the hostname, or correct the hostname.",
		},
		{
			ID: "AET1301", Severity: Error, Title: "a ListenerSet is not allowed by its Gateway",
			Meaning: "The Gateway's allowedListeners, which allows none by default, does not allow the namespace of the ListenerSet. Nothing of it is served.",
			Mend:    "Allow the namespace in spec.allowedListeners of the Gateway.",
			From:    []Condition{{object.ListenerSet, accepted, string(gatewayv1.ListenerSetReasonNotAllowed)}},
		},
	}
}
