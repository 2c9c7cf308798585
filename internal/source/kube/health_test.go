package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
)

func TestWhatCannotBeFollowedIsNamedAndMeasured(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s, err := New(Config{Client: &rest.Config{Host: "https://192.0.2.1"}, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Lacks(); err == nil || !strings.Contains(err.Error(), "not known yet which kinds") {
		t.Errorf("at the start it lacks %v", err)
	}
	of := func(name object.Kind) kind {
		for _, k := range kinds(s.held, s.crds) {
			if k.Name == name {
				return k
			}
		}
		t.Fatalf("no kind %s", name)
		return kind{}
	}
	s.intake.complete()
	s.intake.expect(feed{Kind: object.Gateway})
	s.intake.expect(feed{Kind: object.Service})
	s.intake.listed(0, feed{Kind: object.Service})
	s.hear(of(object.Service), nil)
	s.hear(of(object.Gateway), errors.New("forbidden"))
	s.intake.report("Secret/shop/pair", source.Refused, "nobody could use it") // of an object: not about how the API is followed
	if err := s.Lacks(); err == nil || !strings.Contains(err.Error(), "gateways.gateway.networking.k8s.io cannot be followed: forbidden") ||
		!strings.Contains(err.Error(), "not listed yet: Gateway") {
		t.Errorf("it lacks %v", err)
	}
	if h := s.Health(); h.Synced || len(h.Faults) != 1 || !h.Faults[0].Since.Equal(now) {
		t.Errorf("health %+v", h)
	}

	s.intake.listed(0, feed{Kind: object.Gateway})
	s.hear(of(object.Gateway), nil)
	if b := s.intake.collect(); b == nil || !b.Synced {
		t.Fatalf("batch %+v", b)
	}
	began := now
	now = now.Add(DefaultStale + time.Second)
	s.hear(of(object.Gateway), nil)
	s.noteSilence()
	h := s.Health()
	if err := s.Lacks(); err != nil || !h.Synced || len(h.Faults) != 1 || !strings.Contains(h.Faults[0].About, "Service") || !h.Faults[0].Since.Equal(now) {
		t.Errorf("when nothing was heard of Services since %s: lacks %v, health %+v", began, err, h)
	}
	got := measured(t, s)
	for name, want := range map[string]float64{
		"aether_source_faults": 1, "aether_source_synced": 1, "aether_source_errors_total Gateway": 1, "aether_source_lists_total Gateway": 1,
		"aether_source_last_heard_seconds Gateway": 0, "aether_source_last_heard_seconds Service": 181,
	} {
		if value, there := got[name]; !there || value != want {
			t.Errorf("%s is %v (there: %t), want %v", name, value, there, want)
		}
	}
	s.hear(of(object.Service), nil)
	s.noteSilence()
	if h := s.Health(); len(h.Faults) != 0 {
		t.Errorf("when it was heard of: %+v", h)
	}
}

// measured is the metrics by name and kind.
func measured(t *testing.T, s *Source) map[string]float64 {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(newMetrics(s.intake))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}
