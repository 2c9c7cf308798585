package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"aether.io/aether/internal/attest/owner"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/claim"
	"aether.io/aether/internal/delivery/verdict"
	"aether.io/aether/internal/discovery/ahead"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/event"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/webhook"
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
	log     *slog.Logger
	metrics *prometheus.Registry
	exports *telemetry.Telemetry
	moments *journal.Journal
	id      spiffeid.ID

	platform platform
	pipeline *pipeline.Pipeline
	changes  *changelog.Log
	verdicts *verdicts
	refused  *refused
	events   *event.Recorder // nil: there are none
	statuses *status.Engine
	delivery *verdict.Engine
	world    *world.World
	ca       *ca.Authority
	issuer   *bootstrap.Server
	streams  *server.Server
	ahead    *ahead.Watch
	problems *problems
	bundles  bundles
	replicas *replicas
	claim    *claim.Claim // nil: there are no other releases
	release  releaseConfig
	webhook  *webhook.Server // nil: there is none
	bundle   *webhook.Bundle // nil: whom API servers trust is not ours to say

	synced    atomic.Bool // the source's first list is in the pipeline
	bootstrap atomic.Bool // the listener is open
	stream    atomic.Bool // the listener is open
}

// platform is what differs between a cluster and a directory: where configuration comes
// from, who proves an identity, and where what is made is kept. The rest is the same.
type platform struct {
	caPlace   string // where the CA is, for people
	store     ca.Store
	publisher ca.Publisher
	attester  bootstrap.Attester
	owners    *owner.Checker // nil: there are no pods
	sink      status.Sink
	pods      status.Pods                               // nil: there are none
	sweep     func(context.Context, []object.Key) error // nil: what an earlier process left is seen
	docket    pipeline.Store                            // nil: convictions last as long as the process
	fronts    pipeline.Fronts                           // what comes of what is wanted in front of Gateways
	pooled    bool                                      // Gateways are reached where they are bound, by the one proxy
	follow    func(context.Context, func(context.Context, source.Batch) error) error
	lacks     func() error // why the source has not given everything yet; nil: it cannot say
	stream    func(context.Context) (net.Listener, error)
	bootstrap func(context.Context) (net.Listener, error)
	alone     bool       // there are no other replicas; else one of parts says which leads
	parts     []run.Part // that only it has
}

// serve runs a controller until ctx is done:
//
//	source ──changes──► pipeline (graph) ──resources──► world ──► streams ══► proxies
//	                      ▲    └───────statuses──────► statuses ──► sink
//	                      └──────what proxies report── world ◄── streams ◄══ proxies
//	attester ──► issuer ◄── ca ──roots──► trust bundle, world
//
// Source, attester, sink and what the CA is kept in are the platform's.
func serve(ctx context.Context, f flags, log *slog.Logger, metrics *prometheus.Registry, exports *telemetry.Telemetry) error {
	c := &controller{f: f, log: log, metrics: metrics, exports: exports, moments: &journal.Journal{}, refused: newRefused(), bundles: bundles{in: map[string]bool{}}}
	c.release.namespace = f.releaseNamespace
	var err error
	if c.replicas, err = newReplicas(f.releaseNamespace); err != nil {
		return fmt.Errorf("name of this host: %w", err)
	}
	c.problems = &problems{dir: f.directory, release: f.releaseNamespace, moments: c.moments, log: c.log}
	for _, make := range []func() error{c.makePlatform, c.makeIdentity, c.makeRouting, c.makeDiscovery, c.makeWebhook} {
		if err := make(); err != nil {
			return err
		}
	}
	c.exports.TrustTo(c.collectorAuthorities)
	c.statuses.Lead(c.platform.alone)
	return run.All(ctx, log, grace, append([]run.Part{
		{Name: "world", Run: c.world.Run},
		{Name: "certificate authority", Run: c.ca.Run},
		{Name: "trust", Run: c.shareTrust},
		{Name: "source", Run: func(ctx context.Context) error {
			c.recall(ctx)
			return c.platform.follow(ctx, c.take)
		}},
		{Name: "pipeline", Run: c.pipeline.Run},
		{Name: "changelog", Run: c.changes.Run},
		{Name: "status", Run: c.statuses.Run},
		{Name: "delivery of telemetry", Run: c.delivery.Run},
		{Name: "bootstrap listener", Run: c.serveBootstrap},
		{Name: "stream listener", Run: c.serveStreams},
		{Name: "proxies that are ahead", Run: c.ahead.Run},
	}, c.platform.parts...)...)
}

func (c *controller) makePlatform() error {
	make := c.kubernetes
	if c.f.directory != "" {
		make = c.standalone
	}
	var err error
	c.platform, err = make()
	return err
}

func (c *controller) makeIdentity() error {
	domain, err := spiffeid.ParseTrustDomain(c.f.trustDomain)
	if err != nil {
		return fmt.Errorf("--discovery-trust-domain: %w", err)
	}
	if c.id, err = spiffeid.Controller(domain, c.f.releaseNamespace); err != nil {
		return fmt.Errorf("--release-namespace: %w", err)
	}
	c.ca, err = ca.New(ca.Config{
		Store: c.platform.store, Publisher: c.platform.publisher, TrustDomain: domain,
		Lifetime: c.f.caLifetime, SVIDTTL: c.f.svidTTL, Log: c.log, Registerer: c.metrics,
		OnFault: func(err error) { c.problems.setCA(c.platform.caPlace, err, !c.ca.Roots().IsZero()) },
	})
	return err
}

func (c *controller) makeRouting() error {
	graph, err := routing.New(routing.Config{
		ControllerName: controllerName, ReleaseNamespace: c.f.releaseNamespace, Address: c.f.bind, PublishAddresses: []string{c.f.bind},
		PortOffset: c.f.portOffset, AccessLogPath: c.f.accessLog, TrustFile: c.f.systemCAFile, System: c.f.system,
		Fronts: !c.platform.pooled, Pooled: c.platform.pooled, Collector: c.f.collector(),
		SharedMemory: c.f.sharedBytes,
	})
	if err != nil {
		return err
	}
	c.world = world.New(world.Config{AckDeadline: c.f.ackDeadline, Log: c.log})
	c.changes = changelog.New(c.world, c.moments, time.Now)
	c.verdicts = newVerdicts(c.changes)
	if c.statuses, err = status.New(status.Config{
		Observer: c.world, Sink: c.platform.sink, Pods: c.platform.pods, Grace: c.f.ackDeadline, ReleaseNamespace: c.f.releaseNamespace, Elsewhere: c.replicas.others, Sweep: c.platform.sweep, Log: c.log, Registerer: c.metrics,
	}); err != nil {
		return err
	}
	if err := c.makeDelivery(); err != nil {
		return err
	}
	if c.pipeline, err = pipeline.New(pipeline.Config{
		Graph: graph, World: c.world, Statuses: c.judged(), Recorder: c.verdicts, Store: c.platform.docket, Fronts: c.platform.fronts,
		Tracer: c.exports.Tracer("aether.io/aether/internal/pipeline"), Log: c.log,
	}); err != nil {
		return err
	}
	return nil
}

func (c *controller) makeDiscovery() error {
	domain := c.id.TrustDomain()
	known := accounts{c.pipeline, c.platform.owners}
	allow := bootstrap.AllowList{ReleaseNamespace: c.f.releaseNamespace, Gateways: known}
	if known.owners != nil {
		allow.Owners = known
	}
	var err error
	c.issuer, err = bootstrap.New(bootstrap.Config{
		Attester: c.platform.attester,
		Allow:    allow,
		CA:       c.ca, TrustDomain: domain, Events: rejections{c.moments, c.events, c.f.releaseNamespace},
		Calls: c.exports.Calls(trace.SpanKindServer), Log: c.log, Registerer: c.metrics,
	})
	if err != nil {
		return err
	}
	if c.ahead, err = ahead.New(ahead.Config{OnChange: c.problems.setAhead, Help: c.problems.aheadHelp(), Log: c.log, Registerer: c.metrics}); err != nil {
		return err
	}
	c.streams, err = server.New(server.Config{
		TrustDomain: domain,
		Authorizer:  server.Rule{TrustDomain: domain, ReleaseNamespace: c.f.releaseNamespace, Gateways: c.pipeline},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			sub, err := c.world.Subscribe(ctx, s, p, have, superseded)
			c.ahead.Note(p.ID, err)
			return sub, err
		},
		Calls: c.exports.Openings(trace.SpanKindServer), Tracer: c.exports.Tracer("aether.io/aether/internal/discovery"),
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
	c.bundles.observe(b.Changes)
	if c.replicas.observe(b.Changes) {
		defer c.statuses.Pulse()
	}
	c.pipeline.Apply(pipeline.Batch{Changes: b.Changes, Mark: b.Mark, Synced: b.Synced, Cause: b.Files, Noticed: b.Noticed})
	c.release.observe(b.Changes)
	c.refused.observe(b.Changes)
	c.delivery.Observe(b.Changes, b.Synced)
	if b.Synced {
		c.synced.Store(true)
	}
	c.streams.Recheck() // a Gateway that is dedicated no more has no proxies any more
	return nil
}
