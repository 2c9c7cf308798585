package status

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	writes  *prometheus.CounterVec
	pending prometheus.Collector
}

func newMetrics(pending func() float64) *metrics {
	return &metrics{
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aether_status_writes_total",
			Help: "Statuses that were written, by kind and by what came of it: written, restored (others had taken it away), unchanged, removed or failed.",
		}, []string{"kind", "result"}),
		pending: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "aether_status_pending", Help: "Objects whose status is to be looked at, written, or tried again.",
		}, pending),
	}
}

func (m *metrics) register(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{m.writes, m.pending} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register status metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) count(j *job) {
	result := "unchanged"
	switch {
	case j.err != nil:
		result = "failed"
	case j.doc == nil:
		result = "removed"
	case j.wrote && j.lost:
		result = "restored"
	case j.wrote:
		result = "written"
	}
	m.writes.WithLabelValues(string(j.key.Kind), result).Inc()
}

// quiet is how long after one failure others are counted and not told.
const quiet = 10 * time.Second

// silence keeps an outage, of which each object's write fails, from filling the log.
type silence struct {
	until      time.Time
	suppressed int
}

// interrupt notes a failure and reports whether to tell of it, and how many were not told
// since the last that was.
func (s *silence) interrupt(now time.Time) (suppressed int, tell bool) {
	if now.Before(s.until) {
		s.suppressed++
		return 0, false
	}
	suppressed, s.suppressed, s.until = s.suppressed, 0, now.Add(quiet)
	return suppressed, true
}
