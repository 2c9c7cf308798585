package server

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

type metrics struct {
	clients   *prometheus.GaugeVec
	streams   *prometheus.CounterVec
	snapshots prometheus.Counter
	resources prometheus.Counter
	bytes     prometheus.Counter
	ack       prometheus.Histogram
	nacks     *prometheus.CounterVec
	laggards  prometheus.Collector // nil: not counted
}

func newMetrics(proxies func() []fleet.Proxy) *metrics {
	name := func(n string) string { return "coxswain_discovery_" + n }
	m := &metrics{
		clients: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: name("connected_clients"), Help: "Open streams, by kind of scope.",
		}, []string{"scope"}),
		streams: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("streams_total"), Help: "Streams that have ended, by status code.",
		}, []string{"result"}),
		snapshots: prometheus.NewCounter(prometheus.CounterOpts{Name: name("snapshots_sent_total"), Help: "Snapshots sent."}),
		resources: prometheus.NewCounter(prometheus.CounterOpts{Name: name("resources_sent_total"), Help: "Resources sent in snapshots."}),
		bytes:     prometheus.NewCounter(prometheus.CounterOpts{Name: name("sent_bytes_total"), Help: "Bytes of snapshot messages sent."}),
		ack: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: name("ack_seconds"), Help: "From the first byte of a snapshot to its answer.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 30},
		}),
		nacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name("nacks_total"), Help: "Refusals of resources that clients have told, by type.",
		}, []string{"type"}),
	}
	if proxies != nil {
		m.laggards = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: name("laggards"), Help: "Connected proxies that are past the Ack deadline.",
		}, func() float64 { return float64(laggards(proxies())) })
	}
	return m
}

func laggards(proxies []fleet.Proxy) int {
	n := 0
	for i := range proxies {
		if proxies[i].Connected && proxies[i].Laggard != "" {
			n++
		}
	}
	return n
}

func (m *metrics) register(r prometheus.Registerer) error {
	all := []prometheus.Collector{m.clients, m.streams, m.snapshots, m.resources, m.bytes, m.ack, m.nacks}
	if m.laggards != nil {
		all = append(all, m.laggards)
	}
	for _, c := range all {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register discovery server metrics: %w", err)
		}
	}
	return nil
}

// connected counts a client until the function that it returns is called.
func (m *metrics) connected(s scope.Scope) (gone func()) {
	g := m.clients.WithLabelValues(s.Kind())
	g.Inc()
	return g.Dec
}

func (m *metrics) snapshot(resources, bytes int) {
	m.snapshots.Inc()
	m.resources.Add(float64(resources))
	m.bytes.Add(float64(bytes))
}

// typeLabel is the short name of the types that are sent. What a client names beside
// those is "other": it must not be able to make series.
func typeLabel(n resource.Name) string {
	short := n.TypeURL[strings.LastIndexByte(n.TypeURL, '.')+1:]
	switch short {
	case "Listener", "ScopedRouteConfiguration", "RouteConfiguration", "VirtualHost", "Cluster",
		"ClusterLoadAssignment", "Secret", "Runtime", "TrustBundle":
		return short
	}
	return "other"
}
