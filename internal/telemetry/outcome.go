package telemetry

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"golang.org/x/time/rate"

	"aether.io/aether/internal/logkey"
)

// What is exported.
const (
	signalTraces  = "traces"
	signalLogs    = "logs"
	signalMetrics = "metrics"
)

// metrics tell what became of exports.
type metrics struct {
	exports *prometheus.CounterVec
	failing *prometheus.GaugeVec
	ending  atomic.Bool // what is not sent now is lost, and nobody is told: that is no news of the collector
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		exports: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "aether_otlp_exports_total", Help: "Requests to the OpenTelemetry Collector by what they carried and how they ended; what a failed one carried is lost.",
		}, []string{"signal", "result"}),
		failing: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "aether_otlp_failing", Help: "1 while the newest export to the OpenTelemetry Collector has failed.",
		}, []string{"signal"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.exports, m.failing} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics of telemetry: %w", err)
		}
	}
	return m, nil
}

// outcome returns what is told how each export of a signal ended. It logs when failures begin and
// when they end, to a log that is not exported: a failure would otherwise make the next export.
func (t *Telemetry) outcome(signal string) func(error) {
	t.metrics.failing.WithLabelValues(signal).Set(0)
	var mu sync.Mutex // guards failing
	failing := false
	return func(err error) {
		mu.Lock()
		defer mu.Unlock()
		result, now := "sent", float64(0)
		if err != nil {
			result, now = "failed", 1
		}
		t.metrics.exports.WithLabelValues(signal, result).Inc()
		t.metrics.failing.WithLabelValues(signal).Set(now)
		if (err != nil) == failing || t.metrics.ending.Load() {
			return
		}
		failing = err != nil
		if failing {
			t.c.Log.Warn("telemetry cannot be exported and is dropped", logkey.Signal, signal, logkey.Endpoint, t.c.Endpoint, logkey.Error, err)
			return
		}
		t.c.Log.Info("telemetry is exported again", logkey.Signal, signal, logkey.Endpoint, t.c.Endpoint)
	}
}

// tellEvery bounds how often the SDK's own troubles are told.
const tellEvery = time.Minute

// catch has what else befalls the SDK, as that a collector took a part of a request, told in our log.
// There is one handler in a process.
func (t *Telemetry) catch() {
	seldom := &rate.Sometimes{First: 1, Interval: tellEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		seldom.Do(func() { t.c.Log.Warn("telemetry has a problem", logkey.Error, err) })
	}))
}
