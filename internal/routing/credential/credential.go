// Package credential is the part of the routing graph that keeps TLS material: the
// certificates of listeners, those that Gateways show to backends, and the authorities by
// which clients and backends are verified. It says what each reference comes to; which
// worlds get it is decided by what uses it.
package credential

import (
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/certificate"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/trust"
)

// Credentials is all TLS material.
type Credentials struct {
	entries    *entry.Entries
	validation func(*sheet.Cell, key.Port) *gatewayv1.FrontendTLSValidation

	secret   *sheet.Formula[key.Name, certificate.Certificate]
	bundle   *sheet.Formula[object.Key, trust.Bundle]
	clients  *sheet.Formula[key.Port, Clients]
	identity *sheet.Formula[key.Name, Identity]
}

// New adds the formulas of TLS material to a sheet. validation is how a Gateway wants the
// clients of a port verified, nil if not at all, and must read only what is below them.
func New(s *sheet.Sheet, entries *entry.Entries, validation func(*sheet.Cell, key.Port) *gatewayv1.FrontendTLSValidation) *Credentials {
	m := &Credentials{entries: entries, validation: validation}
	m.secret = sheet.NewFormula(s, m.computeSecret)
	m.bundle = sheet.NewFormula(s, m.computeBundle)
	m.clients = sheet.NewFormula(s, m.computeClients)
	m.identity = sheet.NewFormula(s, m.computeIdentity)
	return m
}

// Secret is a Secret as a certificate.
func (m *Credentials) Secret(c *sheet.Cell, n key.Name) certificate.Certificate {
	return m.secret.Get(c, n)
}

// Bundle is the authorities in a ConfigMap or a Secret.
func (m *Credentials) Bundle(c *sheet.Cell, k object.Key) trust.Bundle { return m.bundle.Get(c, k) }

// Clients is how those of a port are verified.
func (m *Credentials) Clients(c *sheet.Cell, k key.Port) Clients { return m.clients.Get(c, k) }

// Identity is what a Gateway shows to backends.
func (m *Credentials) Identity(c *sheet.Cell, n key.Name) Identity { return m.identity.Get(c, n) }

// computeBundle reads the authorities in a ConfigMap or a Secret.
func (m *Credentials) computeBundle(c *sheet.Cell, k object.Key) trust.Bundle {
	if k.Kind == object.Secret {
		o, _ := entry.Get[*corev1.Secret](m.entries, c, k)
		return trust.ReadSecret(o).Behind(m.entries.Refused(c, k))
	}
	o, _ := entry.Get[*corev1.ConfigMap](m.entries, c, k)
	return trust.ReadConfigMap(o).Behind(m.entries.Refused(c, k))
}
