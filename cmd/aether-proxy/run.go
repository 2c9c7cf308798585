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

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/version"
	"aether.io/aether/internal/xds"
)

// grace is how long the parts may take to stop.
const grace = 5 * time.Second

// serve wires the proxy:
//
//	controller ══ identity (SVID) ══► client ──updates──► xds ──► Envoy
//	                                  client ◄──answers── xds ◄── Envoy
//
// and tells journal and inspection what happens.
func serve(ctx context.Context, f flags, log *slog.Logger) error {
	subscription, err := f.subscription()
	if err != nil {
		return err
	}
	if err := writeBootstrap(f); err != nil {
		return err
	}
	moments := &journal.Journal{}
	metrics := prometheus.NewRegistry()

	local, err := xds.New(xds.Config{Socket: f.xdsSocket, AdminSocket: f.adminSocket, StateDir: f.lastGoodDir, Log: log, Registerer: metrics})
	if err != nil {
		return err
	}
	source, err := newIdentity(f, moments, log, metrics)
	if err != nil {
		return err
	}
	build, began, live := version.Get(), time.Now(), false
	stream, err := client.New(client.Config{
		Endpoint: f.endpoint, Identity: source, Applier: local, Scope: subscription, NodeID: f.proxyID,
		BuildVersion: build.Version, BuildRevision: build.Revision, Log: log, Registerer: metrics,
		OnState: func(s health.State) {
			moments.Add(time.Now(), journal.State, fmt.Sprintf("proxy %s %s", s.State, s.Reason), s)
		},
		OnLive: func(v string) { // called by one goroutine
			if !live {
				live = true
				o := local.Observed()
				moments.Add(time.Now(), journal.EnvoyConnected, "Envoy is up: "+o.EnvoyVersion, nil)
				moments.Add(time.Now(), journal.SnapshotLive, fmt.Sprintf("first snapshot is live in Envoy, %s after the proxy's start", time.Since(began).Round(time.Millisecond)), v)
			}
		},
	})
	if err != nil {
		return err
	}
	pages := map[string]inspect.Page{
		inspect.ResourcesPath: func(*http.Request) (any, error) { return inspect.Resources("", local.Held().Resources), nil },
	}
	handlers := map[string]http.Handler{inspect.ReadyPath: stream.ReadyHandler(), inspect.MetricsPath: inspect.Metrics(metrics)}
	return run.All(ctx, log, grace,
		run.Part{Name: "local xDS server", Run: local.Run},
		run.Part{Name: "identity", Run: source.Run},
		run.Part{Name: "discovery stream", Run: stream.Run},
		run.Part{Name: "inspection", Run: func(ctx context.Context) error {
			return inspect.Serve(ctx, log, f.inspectSocket, inspect.Handler(log, moments, pages, handlers))
		}},
	)
}

// writeBootstrap writes the configuration with which the Envoy beside this proxy starts, if
// it is not there already: a disk that is full then stops nobody.
func writeBootstrap(f flags) error {
	text, err := bootstrap.New(bootstrap.Config{NodeID: f.proxyID, Cluster: f.clusterName, XDSSocket: f.xdsSocket, AdminSocket: f.adminSocket})
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

func newIdentity(f flags, moments *journal.Journal, log *slog.Logger, metrics prometheus.Registerer) (*identity.Source, error) {
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
		Log: log, Registerer: metrics,
		OnSVID: func(s *identity.SVID) {
			moments.Add(time.Now(), journal.SVIDIssued, fmt.Sprintf("SVID issued: %s until %s", s.ID(), s.NotAfter().Local().Format("Jan 2 15:04")), s.Serial())
		},
	})
}
