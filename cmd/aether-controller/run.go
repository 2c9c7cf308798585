package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/statedir"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/world"
)

const (
	// controllerName is whose GatewayClasses are ours.
	controllerName = "config.aether.io/gateway-controller"
	// grace is how long the parts may take to stop.
	grace = 10 * time.Second
)

// controller is everything that one controller is made of.
type controller struct {
	f       flags
	state   statedir.Dir
	log     *slog.Logger
	metrics *prometheus.Registry
	moments *journal.Journal
	id      spiffeid.ID

	files    *source.Directory
	pipeline *pipeline.Pipeline
	changes  *changelog.Log
	statuses *status.Engine
	world    *world.World
	ca       *ca.Authority
	issuer   *bootstrap.Server
	streams  *server.Server
	problems *problems
}

// serve runs a controller until ctx is done:
//
//	files ──changes──► pipeline (graph) ──resources──► world ──► streams ══► proxies
//	                      ▲    └───────statuses──────► statuses ──► files below status/
//	                      └──────what proxies report── world ◄── streams ◄══ proxies
//	token file ──► issuer ◄── ca ──roots──► trust bundle, world
func serve(ctx context.Context, f flags, log *slog.Logger) error {
	c := &controller{f: f, log: log, metrics: prometheus.NewRegistry(), moments: &journal.Journal{}}
	c.problems = &problems{dir: f.directory, moments: c.moments, log: c.log}
	for _, make := range []func() error{c.makeIdentity, c.makeRouting, c.makeDiscovery} {
		if err := make(); err != nil {
			return err
		}
	}
	return run.All(ctx, log, grace,
		run.Part{Name: "world", Run: c.world.Run},
		run.Part{Name: "certificate authority", Run: c.ca.Run},
		run.Part{Name: "trust", Run: c.shareTrust},
		run.Part{Name: "source", Run: func(ctx context.Context) error {
			c.recall(ctx)
			return c.files.Run(ctx, c.take)
		}},
		run.Part{Name: "pipeline", Run: c.pipeline.Run},
		run.Part{Name: "changelog", Run: c.changes.Run},
		run.Part{Name: "status", Run: c.statuses.Run},
		run.Part{Name: "state directory", Run: c.watchState},
		run.Part{Name: "bootstrap listener", Run: c.serveBootstrap},
		run.Part{Name: "stream listener", Run: c.serveStreams},
		run.Part{Name: "inspection", Run: func(ctx context.Context) error {
			return inspect.Serve(ctx, c.log, c.state.ControllerSocket(), c.handler())
		}},
	)
}

// lookAtState is how often it is looked whether the state directory is still the same.
const lookAtState = time.Second

// watchState has all that is in the state directory written again when it was made anew.
func (c *controller) watchState(ctx context.Context) error {
	made, err := c.state.Made()
	if err != nil {
		c.log.Warn("the state directory is nobody's", logkey.Error, err)
	}
	tick := time.NewTicker(lookAtState)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		now, err := c.state.Made()
		if err != nil || now.Same(made) {
			continue
		}
		made = now
		c.log.Warn("the state directory was made anew; writing it again")
		c.files.Rewrite()
		c.statuses.Rewrite()
	}
}

func (c *controller) makeIdentity() error {
	var err error
	if c.state, err = statedir.Of(c.f.stateDir); err != nil {
		return err
	}
	domain, err := spiffeid.ParseTrustDomain(c.f.trustDomain)
	if err != nil {
		return fmt.Errorf("--discovery-trust-domain: %w", err)
	}
	if c.id, err = spiffeid.Controller(domain, c.f.releaseNamespace); err != nil {
		return fmt.Errorf("--release-namespace: %w", err)
	}
	c.ca, err = ca.New(ca.Config{
		Store: ca.FileStore{Dir: c.state.CA()}, Publisher: ca.BundleFile{Path: c.state.TrustBundle()}, TrustDomain: domain,
		Lifetime: c.f.caLifetime, SVIDTTL: c.f.svidTTL, Log: c.log, Registerer: c.metrics,
		OnFault: func(err error) { c.problems.setCA(c.state.CA(), err, !c.ca.Roots().IsZero()) },
	})
	return err
}

func (c *controller) makeRouting() error {
	graph, err := routing.New(routing.Config{
		ControllerName: controllerName, ReleaseNamespace: c.f.releaseNamespace, Address: c.f.bind, PublishAddresses: []string{c.f.bind},
		PortOffset: c.f.portOffset, AccessLogPath: c.f.accessLog, TrustFile: c.f.systemCAFile, System: c.f.system,
	})
	if err != nil {
		return err
	}
	c.world = world.New(world.Config{AckDeadline: c.f.ackDeadline, Log: c.log})
	c.changes = changelog.New(c.world, c.moments, time.Now)
	if c.statuses, err = status.New(status.Config{Observer: c.world, Sink: status.NewFiles(c.state.Status()), Log: c.log}); err != nil {
		return err
	}
	if c.pipeline, err = pipeline.New(pipeline.Config{
		Graph: graph, World: c.world, Statuses: c.statuses, Recorder: c.changes, Store: docket.File{Path: c.state.Convictions()}, Log: c.log,
	}); err != nil {
		return err
	}
	c.files, err = source.NewDirectory(source.DirectoryConfig{
		Dir: c.f.directory, StateDir: c.state.Root(), Log: c.log,
		Progress: func(done, of int) {
			c.moments.Add(time.Now(), journal.Progress, fmt.Sprintf("%d of %d files are read", done, of), nil)
		},
	})
	return err
}

func (c *controller) makeDiscovery() error {
	domain := c.id.TrustDomain()
	var err error
	c.issuer, err = bootstrap.New(bootstrap.Config{
		Attester: attest.NewTokenFile(c.state.Tokens()),
		Allow:    bootstrap.AllowList{ReleaseNamespace: c.f.releaseNamespace, Gateways: accounts{c.pipeline}},
		CA:       c.ca, TrustDomain: domain, Events: rejections{c.moments}, Log: c.log, Registerer: c.metrics,
	})
	if err != nil {
		return err
	}
	c.streams, err = server.New(server.Config{
		TrustDomain: domain,
		Authorizer:  server.Rule{TrustDomain: domain, ReleaseNamespace: c.f.releaseNamespace, Gateways: c.pipeline},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			return c.world.Subscribe(ctx, s, p, have, superseded)
		},
		Proxies: c.world.Proxies, Log: c.log, Registerer: c.metrics,
	})
	return err
}

// recall has the pipeline know what was quarantined, before it is given anything.
func (c *controller) recall(ctx context.Context) {
	if err := c.pipeline.Recall(ctx); err != nil {
		c.log.Warn("what was quarantined is not known", logkey.Error, err)
		c.moments.Add(time.Now(), journal.Problem, fmt.Sprintf("what was quarantined is not known, and is left out where Envoy refuses it still: %v", err), nil)
	}
}

// take carries a batch from the source into the pipeline.
func (c *controller) take(_ context.Context, b source.Batch) error {
	c.problems.set(b.Problems)
	c.pipeline.Apply(pipeline.Batch{Changes: b.Changes, Mark: b.Mark, Synced: b.Synced, Cause: b.Files, Noticed: b.Noticed})
	c.streams.Recheck() // a Gateway that is dedicated no more has no proxies any more
	return nil
}
