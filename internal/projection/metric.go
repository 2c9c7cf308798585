package projection

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics is what an engine counts.
type metrics struct {
	writes *prometheus.CounterVec
	left   prometheus.Gauge
}

func newMetrics() *metrics {
	return &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aether_projection_writes_total", Help: "Writes of the ConfigMap with every MeshConfig, by result: written or failed.",
		}, []string{"result"}),
		left: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "aether_projection_left_out", Help: "MeshConfigs for which there is no room in the ConfigMap.",
		}),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.writes, m.left} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// count notes what came of one look.
func (m *metrics) count(wrote bool, err error) {
	switch {
	case err != nil:
		m.writes.WithLabelValues("failed").Inc()
	case wrote:
		m.writes.WithLabelValues("written").Inc()
	}
}
