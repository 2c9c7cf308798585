package xds

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of the local server.
type metrics struct {
	answers   *prometheus.CounterVec
	connects  prometheus.Counter
	connected prometheus.Gauge
	refused   prometheus.Gauge
	pending   prometheus.Gauge
	lastGood  prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "aether_xds_" + name, Help: help})
	}
	m := &metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aether_xds_answers_total",
			Help: "Answers of Envoy to responses, by resource type and result (accepted, refused).",
		}, []string{"type", "result"}),
		connects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "aether_xds_envoy_connections_total", Help: "Streams that Envoy has opened.",
		}),
		connected: gauge("envoy_connected", "1 while Envoy has a stream open."),
		refused:   gauge("refused_resources", "Resources that Envoy does not accept."),
		pending:   gauge("pending_resources", "Resources that Envoy accepted and that are still warming."),
		lastGood:  gauge("last_good_bytes", "Size of the last-good store."),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.answers, m.connects, m.connected, m.refused, m.pending, m.lastGood} {
		if err := reg.Register(c); err != nil {
			return nil, err //nolint:wrapcheck // names the metric
		}
	}
	return m, nil
}
