package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/version"
)

// telemetry is what the controller exports of itself; log is one that is not exported.
func (f *flags) telemetry(metrics *prometheus.Registry, log *slog.Logger) telemetry.Config {
	c := telemetry.Of(f.otlp)
	c.Service, c.Namespace, c.Version = "aether-controller", f.releaseNamespace, version.Get().Version
	c.Metrics, c.Registerer, c.Log = metrics, metrics, log
	return c
}

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
