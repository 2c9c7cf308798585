package kube

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Health is how well the API is followed.
type Health struct {
	Synced  bool     // everything was handed out once
	Missing []string // kinds that exist and have not been listed yet, or not in a namespace, sorted
	Faults  []Fault  // what is wrong at present, sorted
}

// Fault is one thing by which what is in effect may be old: a kind that cannot be followed, has
// not been heard of for long, or whose definition is missing or of another release.
type Fault struct {
	About   string // the resource, or its definition
	Message string
	Since   time.Time
}

// Health is safe for concurrent use and does not block.
func (s *Source) Health() Health { return s.intake.health() }

// Lacks is why no configuration has been handed out yet; nil: it has been. That the API cannot
// be followed later is no reason not to serve what is known.
func (s *Source) Lacks() error {
	h := s.Health()
	if h.Synced {
		return nil
	}
	var why []string
	for _, f := range h.Faults {
		why = append(why, f.About+" "+f.Message)
	}
	if len(h.Missing) > 0 {
		why = append(why, "not listed yet: "+listing(h.Missing))
	}
	if len(why) == 0 {
		why = []string{"it is not known yet which kinds there are"}
	}
	return fmt.Errorf("the Kubernetes API: %s", strings.Join(why, "; "))
}

// maxListed bounds the kinds that are named.
const maxListed = 15

func listing(missing []string) string {
	named := strings.Join(missing[:min(len(missing), maxListed)], ", ")
	if more := len(missing) - maxListed; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return named
}

func (in *intake) health() Health {
	in.mu.Lock()
	defer in.mu.Unlock()
	h := Health{Synced: in.synced}
	for k := range in.awaited {
		h.Missing = append(h.Missing, k.String())
	}
	slices.Sort(h.Missing)
	for about, p := range in.problems {
		if in.faults[about] {
			h.Faults = append(h.Faults, Fault{About: about, Message: p.Message, Since: p.Since})
		}
	}
	slices.SortFunc(h.Faults, func(a, b Fault) int { return strings.Compare(a.About, b.About) })
	return h
}

// metrics are collected from the intake when they are asked for.
type metrics struct {
	intake  *intake
	heard   *prometheus.Desc
	synced  *prometheus.Desc
	lists   *prometheus.Desc
	errors  *prometheus.Desc
	faults  *prometheus.Desc
	reached *prometheus.Desc
}

func newMetrics(in *intake) *metrics {
	kind := []string{"kind"}
	return &metrics{
		intake:  in,
		heard:   prometheus.NewDesc("aether_source_last_heard_seconds", "Since the API server last said anything of a kind that is followed: a list, an event, a bookmark. It sends a bookmark about every minute.", kind, nil),
		synced:  prometheus.NewDesc("aether_source_synced", "Whether everything was listed and handed out once: 1 or 0.", nil, nil),
		lists:   prometheus.NewDesc("aether_source_lists_total", "Complete lists of a kind: one at the start, and one each time that a watch could not be taken up where it ended.", kind, nil),
		errors:  prometheus.NewDesc("aether_source_errors_total", "Lists and watches of a kind that the API server refused or did not answer.", kind, nil),
		faults:  prometheus.NewDesc("aether_source_faults", "Kinds and definitions that cannot be followed as they should, at present.", nil, nil),
		reached: prometheus.NewDesc("aether_source_position", "The resourceVersion up to which a resource was followed, or RESOURCE/NAMESPACE where not all namespaces are watched.", []string{"resource"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.heard, m.synced, m.lists, m.errors, m.faults, m.reached} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	h, heard := m.intake.health(), m.intake.freshness()
	synced := 0.0
	if h.Synced {
		synced = 1
	}
	out <- prometheus.MustNewConstMetric(m.synced, prometheus.GaugeValue, synced)
	out <- prometheus.MustNewConstMetric(m.faults, prometheus.GaugeValue, float64(len(h.Faults)))
	for k, age := range heard {
		out <- prometheus.MustNewConstMetric(m.heard, prometheus.GaugeValue, age.Seconds(), string(k))
	}
	m.intake.mu.Lock()
	defer m.intake.mu.Unlock()
	for k, n := range m.intake.lists {
		out <- prometheus.MustNewConstMetric(m.lists, prometheus.CounterValue, float64(n), string(k))
	}
	for k, n := range m.intake.failures {
		out <- prometheus.MustNewConstMetric(m.errors, prometheus.CounterValue, float64(n), string(k))
	}
	for resource, at := range m.intake.positions {
		out <- prometheus.MustNewConstMetric(m.reached, prometheus.GaugeValue, float64(at), resource)
	}
}
