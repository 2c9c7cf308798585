package scrape_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"aether.io/aether/internal/scrape"
)

// envoy stands at the edge: it answers with what it is told to.
type envoy struct {
	text  string
	whole bool
	err   error
	enter chan struct{} // if not nil: sent to before answering
	leave chan struct{}
}

func (e *envoy) Prometheus(_ context.Context, w *bytes.Buffer, _ int64) (bool, error) {
	if e.enter != nil {
		e.enter <- struct{}{}
		<-e.leave
	}
	w.WriteString(e.text)
	return e.whole, e.err
}

func newPage(t *testing.T, e *envoy) *scrape.Page {
	t.Helper()
	own := prometheus.NewRegistry()
	own.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "aether_own", Help: "Ours."}, func() float64 { return 7 }))
	p, err := scrape.New(own, e, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get(p *scrape.Page) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	p.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody))
	return w
}

func TestOnePageHasBoth(t *testing.T) {
	const theirs = "# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"
	for name, c := range map[string]struct {
		envoy envoy
		want  map[string]float64
	}{
		"Envoy answers":             {envoy{text: theirs, whole: true}, map[string]float64{"aether_own": 7, "aether_envoy_metrics_up": 1, "aether_envoy_metrics_whole": 1, "envoy_server_live": 1}},
		"Envoy has too much to say": {envoy{text: theirs}, map[string]float64{"aether_own": 7, "aether_envoy_metrics_up": 1, "aether_envoy_metrics_whole": 0, "envoy_server_live": 1}},
		"Envoy is not there":        {envoy{err: errors.New("no Envoy is there")}, map[string]float64{"aether_own": 7, "aether_envoy_metrics_up": 0, "aether_envoy_metrics_whole": 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := get(newPage(t, &c.envoy))
			if w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), "text/plain") {
				t.Fatalf("%d %v", w.Code, w.Header())
			}
			parser := expfmt.NewTextParser(model.UTF8Validation)
			families, err := parser.TextToMetricFamilies(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			for metric, value := range c.want {
				if f := families[metric]; f == nil || f.GetMetric()[0].GetGauge().GetValue() != value {
					t.Errorf("%s is %v, want %g", metric, f, value)
				}
			}
			if len(families) != len(c.want) {
				t.Errorf("%d families, want %d", len(families), len(c.want))
			}
		})
	}
}

func TestOnlySoManyPagesAreMadeAtATime(t *testing.T) {
	e := &envoy{whole: true, enter: make(chan struct{}), leave: make(chan struct{})}
	p := newPage(t, e)
	codes := make(chan int, 2)
	for range 2 {
		go func() { codes <- get(p).Code }()
		<-e.enter
	}
	if w := get(p); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	close(e.leave)
	for range 2 {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("%d", code)
		}
	}
}
