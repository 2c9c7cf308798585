package client

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/discovery/health"
)

// metrics is what can be scraped of the client. It is safe for concurrent use.
type metrics struct {
	states     *prometheus.GaugeVec
	reconnects prometheus.Counter
	age        prometheus.GaugeFunc
	newest     atomic.Pointer[time.Time] // when the newest snapshot was taken in
}

func newMetrics(now func() time.Time) *metrics {
	m := &metrics{
		states: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "coxswain_discovery_client_state",
			Help: "1 for the state that the proxy is in, 0 for the others.",
		}, []string{"state"}),
		reconnects: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "coxswain_discovery_client_reconnects_total",
			Help: "Streams attempted after the first, renewals of the SVID included.",
		}),
	}
	m.age = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "coxswain_discovery_client_last_snapshot_age_seconds",
		Help: "Seconds since the newest snapshot was received, computed at scrape; NaN before the first.",
	}, func() float64 {
		if t := m.newest.Load(); t != nil {
			return now().Sub(*t).Seconds()
		}
		return math.NaN()
	})
	return m
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.states, m.reconnects, m.age} {
		if err := r.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) state(current string) {
	for _, s := range health.States() {
		value := 0.0
		if s == current {
			value = 1
		}
		m.states.WithLabelValues(s).Set(value)
	}
}

func (m *metrics) snapshot(at time.Time) { m.newest.Store(&at) }
