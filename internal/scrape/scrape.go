// Package scrape makes one page of metrics out of a proxy's own and those of the Envoy
// beside it, in Prometheus' text format. It keeps none.
package scrape

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"aether.io/aether/internal/logkey"
)

const (
	// maxEnvoy bounds what is taken over of Envoy's metrics, in bytes.
	maxEnvoy = 64 << 20
	// atOnce is how many pages are made at a time; each costs as much memory as it is long.
	atOnce = 2
)

// Envoy is asked for its metrics.
type Envoy interface {
	// Prometheus writes at most limit bytes of whole lines, and reports whether that was all.
	Prometheus(ctx context.Context, w *bytes.Buffer, limit int64) (whole bool, err error)
}

// Page serves metrics.
type Page struct {
	own   prometheus.Gatherer
	envoy Envoy
	log   *slog.Logger
	turns chan struct{}

	up, whole prometheus.Gauge
}

// New makes a page of what is registered with own, where it registers two metrics itself.
func New(own *prometheus.Registry, envoy Envoy, log *slog.Logger) (*Page, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "aether_envoy_metrics_" + name, Help: help})
	}
	p := &Page{
		own: own, envoy: envoy, log: log, turns: make(chan struct{}, atOnce),
		up:    gauge("up", "1 if Envoy answered with its metrics when this page was made; else it has none of them."),
		whole: gauge("whole", "1 if all of Envoy's metrics are on this page, 0 if they are too many or Envoy did not answer."),
	}
	for _, g := range []prometheus.Gauge{p.up, p.whole} {
		if err := own.Register(g); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case p.turns <- struct{}{}:
		defer func() { <-p.turns }()
	case <-r.Context().Done():
		return
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, "other scrapes are under way", http.StatusServiceUnavailable)
		return
	}
	var theirs bytes.Buffer
	whole, err := p.envoy.Prometheus(r.Context(), &theirs, maxEnvoy)
	if err != nil {
		p.log.Debug("metrics without envoy's", logkey.Error, err)
	}
	p.up.Set(number(err == nil))
	p.whole.Set(number(err == nil && whole))
	ours, err := text(p.own)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	_, _ = w.Write(ours) // a scraper that is gone needs no answer
	_, _ = w.Write(theirs.Bytes())
}

func text(g prometheus.Gatherer) ([]byte, error) {
	families, err := g.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, fmt.Errorf("write metrics: %w", err)
		}
	}
	return b.Bytes(), nil
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
