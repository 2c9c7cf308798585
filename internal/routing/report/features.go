package report

import (
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"
	"sigs.k8s.io/gateway-api/pkg/features"

	"aether.io/aether/internal/routing/condition"
)

// SupportedFeatures is the one list of what of the Gateway API this release claims;
// status, documentation and the conformance claim come from it. Sorted by name.
func SupportedFeatures() []gatewayv1.SupportedFeature {
	list := []gatewayv1.SupportedFeature{}
	for _, f := range []features.FeatureName{
		features.SupportBackendTLSPolicy,
		features.SupportBackendTLSPolicySANValidation,
		features.SupportGateway,
		features.SupportGatewayAddressEmpty,
		features.SupportGatewayBackendClientCertificate,
		features.SupportGatewayFrontendClientCertificateValidation,
		features.SupportGatewayFrontendClientCertificateValidationInsecureFallback,
		features.SupportGatewayHTTPListenerIsolation,
		features.SupportGatewayHTTPSListenerDetectMisdirectedRequests,
		features.SupportGatewayPort8080,
		features.SupportGatewayStaticAddresses,
		features.SupportHTTPRoute,
		features.SupportHTTPRoute303RedirectStatusCode,
		features.SupportHTTPRoute307RedirectStatusCode,
		features.SupportHTTPRoute308RedirectStatusCode,
		features.SupportHTTPRouteBackendProtocolH2C,
		features.SupportHTTPRouteBackendProtocolWebSocket,
		features.SupportHTTPRouteBackendRequestHeaderModification,
		features.SupportHTTPRouteBackendTimeout,
		features.SupportHTTPRouteCORS,
		features.SupportHTTPRouteHostRewrite,
		features.SupportHTTPRouteMethodMatching,
		features.SupportHTTPRouteNamedRouteRule,
		features.SupportHTTPRouteParentRefPort,
		features.SupportHTTPRoutePathRedirect,
		features.SupportHTTPRoutePathRewrite,
		features.SupportHTTPRoutePortRedirect,
		features.SupportHTTPRouteQueryParamMatching,
		features.SupportHTTPRouteRequestMirror,
		features.SupportHTTPRouteRequestMultipleMirrors,
		features.SupportHTTPRouteRequestPercentageMirror,
		features.SupportHTTPRouteRequestTimeout,
		features.SupportHTTPRouteResponseHeaderModification,
		features.SupportHTTPRouteSchemeRedirect,
		features.SupportListenerSet,
		features.SupportReferenceGrant,
	} {
		list = append(list, gatewayv1.SupportedFeature{Name: gatewayv1.FeatureName(f)})
	}
	slices.SortFunc(list, func(a, b gatewayv1.SupportedFeature) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return list
}

// GatewayClass is the status of a class of ours. invalid says why its parameters cannot
// be used.
func GatewayClass(generation int64, invalid string) *gatewayv1.GatewayClassStatus {
	kind, reason := gatewayv1.GatewayClassConditionStatusAccepted, gatewayv1.GatewayClassReasonAccepted
	accepted := condition.True(kind, reason, "Gateways of this class are served")
	if invalid != "" {
		accepted = condition.False(kind, gatewayv1.GatewayClassReasonInvalidParameters, invalid)
	}
	// The objects were admitted by the definitions of the version that this is built with.
	supported := condition.True(gatewayv1.GatewayClassConditionStatusSupportedVersion, gatewayv1.GatewayClassReasonSupportedVersion, "Gateway API "+consts.BundleVersion)
	return &gatewayv1.GatewayClassStatus{
		Conditions:        condition.Of(generation, accepted, supported),
		SupportedFeatures: SupportedFeatures(),
	}
}
