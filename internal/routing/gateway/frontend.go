package gateway

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Validation is how the clients of a port's HTTPS sections are verified; nil: they show
// no certificate. What is said of a port replaces the default, also by saying nothing.
func (g Gateway) Validation(port uint32) *gatewayv1.FrontendTLSValidation {
	if g.Frontend == nil {
		return nil
	}
	for _, p := range g.Frontend.PerPort {
		if uint32(p.Port) == port {
			return p.TLS.Validation
		}
	}
	return g.Frontend.Default.Validation
}

// Insecure reports whether clients are served somewhere whose certificate does not verify.
func (g Gateway) Insecure() bool {
	if g.Frontend == nil {
		return false
	}
	all := []gatewayv1.TLSConfig{g.Frontend.Default}
	for _, p := range g.Frontend.PerPort {
		all = append(all, p.TLS)
	}
	for _, c := range all {
		if c.Validation != nil && c.Validation.Mode == gatewayv1.AllowInsecureFallback {
			return true
		}
	}
	return false
}
