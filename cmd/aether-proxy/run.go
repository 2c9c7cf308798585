package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"
	"go.opentelemetry.io/otel/trace"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/delivery"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/drain"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/envoyadmin"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/port"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/scrape"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/version"
	"aether.io/aether/internal/xds"
)

// grace is how long the parts may take to stop.
const grace = 5 * time.Second

// proxy is everything that one proxy is made of.
type proxy struct {
	f         flags
	log       *slog.Logger
	metrics   *prometheus.Registry
	telemetry *telemetry.Telemetry
	moments   *journal.Journal

	admin    *envoyadmin.Client
	delivery *delivery.Watch
	xds      *xds.Server
	identity *identity.Source
	stream   *client.Client
	drain    *drain.Drain
}

// serve wires the proxy:
//
//	controller ══ identity (SVID) ══► client ──updates──► xds ──► Envoy
//	                                  client ◄──answers── xds ◄── Envoy
//	                                  client ◄─checks── delivery, drain ──► Envoy's admin
//
// and tells journal, inspection, kubelet and scrapers what happens.
func serve(ctx context.Context, f flags, log *slog.Logger, metrics *prometheus.Registry, own *telemetry.Telemetry) error {
	subscription, err := f.subscription()
	if err != nil {
		return err
	}
	if err := writeBootstrap(f); err != nil {
		return err
	}
	p := &proxy{f: f, log: log, metrics: metrics, telemetry: own, moments: &journal.Journal{}, admin: envoyadmin.New(f.adminSocket)}
	defer p.admin.Close()
	if p.xds, err = xds.New(xds.Config{Socket: f.xdsSocket, AdminSocket: f.adminSocket, StateDir: f.lastGoodDir, Log: log, Registerer: p.metrics}); err != nil {
		return err
	}
	if p.identity, err = p.newIdentity(); err != nil {
		return err
	}
	if p.delivery, err = delivery.New(delivery.Config{Envoy: p.admin, Exporting: p.exports, Log: log, Registerer: p.metrics}); err != nil {
		return err
	}
	if err := p.makeStream(subscription); err != nil {
		return err
	}
	if p.drain, err = drain.New(drain.Config{
		Envoy: p.admin, Absent: envoyadmin.ErrAbsent, Terms: f.drain, Log: log, Registerer: p.metrics,
		OnChange: func(s drain.State) {
			p.moments.Add(time.Now(), journal.State, "drain: "+s.Phase.String(), s)
		},
	}); err != nil {
		return err
	}
	p.telemetry.TrustTo(p.collectorAuthorities)
	ports, err := p.ports()
	if err != nil {
		return err
	}
	return run.All(ctx, log, grace, append([]run.Part{
		{Name: "local xDS server", Run: p.xds.Run},
		{Name: "identity", Run: p.identity.Run},
		{Name: "discovery stream", Run: p.stream.Run},
		{Name: "delivery of telemetry", Run: p.delivery.Run},
		{Name: "drain", Run: p.drain.Run},
	}, ports...)...)
}

// exports reports whether Envoy has a collector: of its bootstrap, or of the controller.
func (p *proxy) exports() bool {
	return p.f.collector() != nil || p.xds.Holds(resource.Name{TypeURL: envoy.ClusterType, Name: envoy.CollectorName})
}

func (p *proxy) makeStream(subscription scope.Scope) error {
	build, began, live := version.Get(), time.Now(), false
	var err error
	p.stream, err = client.New(client.Config{
		Endpoint: p.f.endpoint, Identity: p.identity, Applier: p.xds, Scope: subscription, NodeID: p.f.proxyID,
		BuildVersion: build.Version, BuildRevision: build.Revision, Watch: p.delivery, Calls: p.telemetry.Openings(trace.SpanKindClient), Log: p.log, Registerer: p.metrics,
		OnState: func(s health.State) {
			p.moments.Add(time.Now(), journal.State, fmt.Sprintf("proxy %s %s", s.State, s.Reason), s)
		},
		OnLive: func(v string) { // called by one goroutine
			if !live {
				live = true
				o := p.xds.Observed()
				p.moments.Add(time.Now(), journal.EnvoyConnected, "Envoy is up: "+o.EnvoyVersion, nil)
				p.moments.Add(time.Now(), journal.SnapshotLive, fmt.Sprintf("first snapshot is live in Envoy, %s after the proxy's start", time.Since(began).Round(time.Millisecond)), v)
			}
		},
	})
	return err
}

// ports are where the proxy answers: people, the kubelet, scrapers, and who may drain it.
func (p *proxy) ports() ([]run.Part, error) {
	page, err := scrape.New(p.metrics, p.admin, p.log)
	if err != nil {
		return nil, err
	}
	pages := map[string]inspect.Page{
		inspect.ResourcesPath: func(*http.Request) (any, error) { return inspect.Resources("", p.xds.Held().Resources), nil },
	}
	questions := inspect.Handler(p.log, p.moments, pages, map[string]http.Handler{
		inspect.ReadyPath: health.Handler(p.state), inspect.MetricsPath: inspect.Metrics(p.metrics),
	})
	parts := []run.Part{{Name: "inspection", Run: func(ctx context.Context) error {
		if p.f.inspectSocket == "" {
			return inspect.ServeLoopback(ctx, p.f.inspectPort, questions)
		}
		return inspect.Serve(ctx, p.log, p.f.inspectSocket, questions)
	}}}
	if p.f.drainSocket != "" {
		parts = append(parts, run.Part{Name: "drain socket", Run: func(ctx context.Context) error {
			return inspect.Serve(ctx, p.log, p.f.drainSocket, p.drain.Handler())
		}})
	}
	if p.f.healthBind != "" {
		parts = append(parts, run.Part{Name: "health port", Run: func(ctx context.Context) error {
			return port.Serve(ctx, p.log, p.f.healthBind, p.health())
		}})
	}
	if p.f.metricsBind != "" {
		mux := http.NewServeMux()
		mux.Handle("GET "+inspect.MetricsPath, page)
		parts = append(parts, run.Part{Name: "metrics port", Run: func(ctx context.Context) error {
			return port.Serve(ctx, p.log, p.f.metricsBind, mux)
		}})
	}
	return parts, nil
}

// writeBootstrap writes the configuration with which the Envoy beside this proxy starts, if
// it is not there already: a disk that is full then stops nobody.
func writeBootstrap(f flags) error {
	text, err := bootstrap.New(bootstrap.Config{NodeID: f.proxyID, Cluster: f.clusterName, XDSSocket: f.xdsSocket, AdminSocket: f.adminSocket, Collector: f.collector()})
	if err != nil {
		return fmt.Errorf("make Envoy's bootstrap: %w", err)
	}
	if now, err := os.ReadFile(f.bootstrapPath); err == nil && bytes.Equal(now, text) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.bootstrapPath), 0o700); err != nil {
		return fmt.Errorf("write Envoy's bootstrap: %w", err)
	}
	if err := atomicfile.Write(f.bootstrapPath, text, 0o600); err != nil {
		return fmt.Errorf("write Envoy's bootstrap: %w", err)
	}
	return nil
}

func (p *proxy) newIdentity() (*identity.Source, error) {
	f := p.f
	domain, err := spiffeid.ParseTrustDomain(f.trustDomain)
	if err != nil {
		return nil, fmt.Errorf("--discovery-trust-domain: %w", err)
	}
	server, err := gospiffeid.FromString(f.serverID)
	if err != nil {
		return nil, fmt.Errorf("--discovery-server-id: %w", err)
	}
	return identity.New(identity.Config{
		Endpoint: f.bootstrapEndpoint, TokenPath: f.tokenPath, BundlePath: f.bundlePath, TrustDomain: domain, ServerID: server,
		Calls: p.telemetry.Calls(trace.SpanKindClient), Log: p.log, Registerer: p.metrics,
		OnSVID: func(s *identity.SVID) {
			p.moments.Add(time.Now(), journal.SVIDIssued, fmt.Sprintf("SVID issued: %s until %s", s.ID(), s.NotAfter().Local().Format("Jan 2 15:04")), s.Serial())
		},
	})
}
