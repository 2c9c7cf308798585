package webhook

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a Server's.
type metrics struct {
	requests *prometheus.CounterVec
}

func newMetrics(to prometheus.Registerer, notAfter func() float64) (metrics, error) {
	m := metrics{requests: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aether_webhook_requests_total",
		Help: "Reviews of MeshConfigs, by result: allowed, warned (and allowed), denied; malformed and busy got no verdict.",
	}, []string{"result"})}
	for _, r := range results() {
		m.requests.WithLabelValues(r)
	}
	if to == nil {
		return m, nil
	}
	return m, errors.Join(to.Register(m.requests), to.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "aether_webhook_certificate_expiry_seconds",
		Help: "When the webhook's certificate expires, in seconds since 1970; 0 if there is none, and every handshake fails.",
	}, notAfter)))
}
