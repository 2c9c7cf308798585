package main

import (
	"crypto/x509"
	"errors"
	"fmt"

	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/spiffeid"
)

// releaseNamespace is of the release whose controller the proxy obeys, wherever it runs; empty: the
// flag that says so cannot be read, and is refused later.
func (f *flags) releaseNamespace() string {
	id, err := gospiffeid.FromString(f.serverID)
	if err != nil {
		return ""
	}
	namespace, _, _ := spiffeid.Parse(id)
	return namespace
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
