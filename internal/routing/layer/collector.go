package layer

import (
	"errors"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/entry"
	"aether.io/aether/internal/routing/sheet"
	"aether.io/aether/internal/routing/trust"
	"aether.io/aether/internal/scope"
)

// Collector is what proxies export to. The zero Collector is none.
type Collector struct {
	Host string
	Port uint32
	TLS  bool
	// ServerName is what its certificate must be for; with TLS it is needed, and no address.
	ServerName string
	// Authorities is the ConfigMap of the release namespace that has them; empty: TrustFile.
	Authorities string
	TrustFile   string // PEM bundle beside each proxy
}

// IsZero reports whether there is none.
func (t Collector) IsZero() bool { return t == Collector{} }

// Check tells what is wrong with it.
func (t Collector) Check() error {
	switch {
	case t.IsZero():
		return nil
	case !t.TLS && (t.ServerName != "" || t.Authorities != ""):
		return errors.New("collector: without TLS there is no server name and no authority")
	case t.TLS && t.Authorities == "" && t.TrustFile == "":
		return errors.New("collector: TLS without authorities")
	}
	return t.model().Validate()
}

func (t Collector) model() envoy.Collector {
	m := envoy.Collector{Host: t.Host, Port: t.Port}
	if t.TLS {
		file := t.TrustFile
		if t.Authorities != "" {
			file = ""
		}
		m.TLS = envoy.CollectorTLS(t.ServerName, file)
	}
	return m
}

// shipCollector gives a scope the collector's cluster and the authorities that it is
// verified by. While there are none, nothing is exported; nobody is believed in their place.
func (l *Layers) shipCollector(c *sheet.Cell, s scope.Scope) []resource.Name {
	if l.config.Collector.IsZero() {
		return nil
	}
	cluster, err := l.config.Collector.model().Resource()
	if err != nil { // it was checked when the graph was made
		return nil
	}
	l.put(c, s, cluster)
	names := []resource.Name{cluster.Name}
	if r := l.authorities(c); r != nil {
		l.put(c, s, r)
		names = append(names, r.Name)
	}
	return names
}

// authorities is the collector's as a secret; nil: there are none, or the ConfigMap is bad.
func (l *Layers) authorities(c *sheet.Cell) *resource.Resource {
	if l.config.Collector.Authorities == "" {
		return nil
	}
	k := object.Key{Kind: object.ConfigMap, Namespace: l.config.ReleaseNamespace, Name: l.config.Collector.Authorities}
	o, _ := entry.Get[*corev1.ConfigMap](l.entries, c, k)
	b := trust.ReadConfigMap(o)
	if b.Authorities == nil {
		return nil
	}
	r, err := envoy.Trust{Name: envoy.CollectorName, Authorities: b.Authorities, Origin: []object.Key{k}}.Resource()
	if err != nil {
		return nil
	}
	return r
}
