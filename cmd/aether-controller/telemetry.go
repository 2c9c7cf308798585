package main

import (
	"crypto/x509"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
)

// collectorAuthorities are those of the ConfigMap that proxies are given as well. The source
// follows it, so a change is in effect at the next handshake.
func (c *controller) collectorAuthorities() (*x509.CertPool, error) {
	name := c.f.otlp.Authorities
	configMap, _ := c.pipeline.Object(object.Key{Kind: object.ConfigMap, Namespace: c.f.releaseNamespace, Name: name}).(*corev1.ConfigMap)
	b := trust.ReadConfigMap(configMap)
	if b.Authorities == nil {
		return nil, fmt.Errorf("ConfigMap %s/%s %s", c.f.releaseNamespace, name, b.Problem)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b.Authorities) {
		return nil, errors.New("no certificate can be read")
	}
	return pool, nil
}
