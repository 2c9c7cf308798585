package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/version"
)

// telemetry is what the proxy exports of itself; log is one that is not exported. It is of the
// release whose controller it obeys, wherever it runs.
func (f *flags) telemetry(metrics *prometheus.Registry, log *slog.Logger) telemetry.Config {
	c := telemetry.Of(f.otlp)
	c.Service, c.Version = "aether-proxy", version.Get().Version
	if id, err := gospiffeid.FromString(f.serverID); err == nil { // else it is refused later, with its flag
		c.Namespace, _, _ = spiffeid.Parse(id)
	}
	c.Metrics, c.Registerer, c.Log = metrics, metrics, log
	return c
}

// collectorAuthorities are those that Envoy verifies the collector by. They come from the controller, and
// are among what is kept for a restart: no pod of a Gateway's namespace has a ConfigMap with them.
func (p *proxy) collectorAuthorities() (*x509.CertPool, error) {
	held := p.xds.Held().Resources
	for _, r := range held {
		pem, is, err := envoy.CollectorAuthorities(r)
		if err != nil {
			return nil, fmt.Errorf("read the authorities of the collector: %w", err)
		}
		if !is {
			continue
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errors.New("the authorities of the collector cannot be read")
		}
		return pool, nil
	}
	return nil, errors.New("the controller has sent no authorities of the collector")
}
