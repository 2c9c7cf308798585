package ca

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// expiry computes at each scrape how many seconds remain: a gauge that is set only when
// something happens would stand still while the certificate runs out.
type expiry struct {
	a                       *Authority
	ca, root, server, fault *prometheus.Desc
}

func (a *Authority) register() error {
	if a.cfg.Registerer == nil {
		return nil
	}
	e := &expiry{
		a: a,
		ca: prometheus.NewDesc("coxswain_discovery_ca_expiry_seconds",
			"Seconds until the CA in use expires.", nil, nil),
		root: prometheus.NewDesc("coxswain_discovery_root_expiry_seconds",
			"Seconds until a root of the trust bundle expires.", []string{"fingerprint"}, nil),
		server: prometheus.NewDesc("coxswain_discovery_server_certificate_expiry_seconds",
			"Seconds until the first of the server certificates in use expires.", nil, nil),
		fault: prometheus.NewDesc("coxswain_discovery_ca_fault",
			"1 while the stored CA cannot be used or published, else 0.", nil, nil),
	}
	for _, c := range []prometheus.Collector{a.issues, e} {
		if err := a.cfg.Registerer.Register(c); err != nil {
			return fmt.Errorf("register CA metrics: %w", err)
		}
	}
	return nil
}

// Describe implements prometheus.Collector.
func (e *expiry) Describe(ch chan<- *prometheus.Desc) {
	ch <- e.ca
	ch <- e.root
	ch <- e.server
	ch <- e.fault
}

// Collect implements prometheus.Collector.
func (e *expiry) Collect(ch chan<- prometheus.Metric) {
	now := e.a.cfg.Now()
	remaining := func(d *prometheus.Desc, t time.Time, label ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, t.Sub(now).Seconds(), label...)
	}
	if is := e.a.current(); is != nil {
		remaining(e.ca, is.notAfter)
	}
	for _, c := range e.a.Roots().Certificates() {
		sum := sha256.Sum256(c.Raw)
		remaining(e.root, c.NotAfter, hex.EncodeToString(sum[:8]))
	}
	if t := e.a.serverNotAfter(); !t.IsZero() {
		remaining(e.server, t)
	}
	fault := 0.0
	if e.a.Fault() != nil {
		fault = 1
	}
	ch <- prometheus.MustNewConstMetric(e.fault, prometheus.GaugeValue, fault)
}
