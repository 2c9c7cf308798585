package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/internal/attest/owner"
	"aether.io/aether/internal/attest/review"
	cakube "aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/election"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/projection"
	"aether.io/aether/internal/provision"
	"aether.io/aether/internal/provision/hold"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/proxypod"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/run"
	sourcekube "aether.io/aether/internal/source/kube"
	"aether.io/aether/internal/status"
	statuskube "aether.io/aether/internal/status/kube"
	"aether.io/aether/internal/svid"
)

// clientQPS and clientBurst are how fast the API may be called: never the bottleneck, which
// the API server's own fairness is to be.
const (
	clientQPS   = 500
	clientBurst = 1000
)

// statusManager and the release namespace are who writes statuses: what is on record of that
// tells what one release wrote from what another did.
const (
	statusManager = "aether-controller/"
	formerManager = "aether-controller" // of versions that named none: the program's name
)

// clientConfig is that of the file, or of the pod if there is none.
func clientConfig(file string) (*rest.Config, error) {
	if file == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("no --kubeconfig, and this is no pod: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	return config, nil
}

// kubernetes is a controller of a cluster. There may be several: each serves proxies, and
// what only one may do, the leader does.
func (c *controller) kubernetes() (platform, error) {
	config, err := clientConfig(c.f.kubeconfig)
	if err != nil {
		return platform{}, err
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	config.UserAgent = rest.DefaultKubernetesUserAgent() // so that audit logs say who it was
	selector, err := labels.ConvertSelectorToLabelsMap(c.f.proxySelector)
	if err != nil {
		return platform{}, fmt.Errorf("--shared-proxy-selector: %w", err)
	}
	sink, err := statuskube.New(statuskube.Config{
		Client: config, ControllerName: controllerName, FieldManager: statusManager + c.f.releaseNamespace, Former: formerManager,
	})
	if err != nil {
		return platform{}, err
	}
	keeper, err := c.makeKeeper(config)
	if err != nil {
		return platform{}, err
	}
	convictions, err := c.makeDocket(config)
	if err != nil {
		return platform{}, err
	}
	projected, err := c.makeProjection(config)
	if err != nil {
		return platform{}, err
	}
	// Where proxies see it: with the roots that they trust.
	epochs, err := sourcekube.EpochIn(config, types.NamespacedName{Namespace: c.f.releaseNamespace, Name: cakube.BundleName})
	if err != nil {
		return platform{}, err
	}
	source, err := sourcekube.New(sourcekube.Config{
		Client: config, Namespaces: c.f.watched(), Class: c.f.gatewayClass, Withheld: types.NamespacedName{Namespace: c.f.releaseNamespace, Name: c.f.caSecret}, Seen: c.show(sink, projected), Epochs: epochs, Memory: keeper, Registerer: c.metrics, Log: c.log,
	})
	if err != nil {
		return platform{}, err
	}
	store, err := cakube.NewSecret(cakube.SecretConfig{
		Client: config, Namespace: c.f.releaseNamespace, Name: c.f.caSecret, External: c.f.caMode == caExternal,
	})
	if err != nil {
		return platform{}, err
	}
	bundle, err := cakube.NewBundle(cakube.BundleConfig{
		Client: config, Home: c.f.releaseNamespace, Namespaces: c.trusting, Spent: c.trustedInVain, OnTaken: c.trustTaken,
	})
	if err != nil {
		return platform{}, err
	}
	reviewer, err := review.New(review.Config{Client: config})
	if err != nil {
		return platform{}, err
	}
	owners, err := owner.New(config)
	if err != nil {
		return platform{}, err
	}
	pods, err := proxypod.New(proxypod.Config{
		Client: config, Namespace: c.f.releaseNamespace, Shared: c.f.proxySelector, Dedicated: pod.Every, Namespaces: c.f.watched(),
		Owned:   func(ctx context.Context, w svid.Workload) error { return accounts{c.pipeline, owners}.Owned(ctx, w) },
		Changed: func() { c.statuses.Pulse() }, Log: c.log,
	})
	if err != nil {
		return platform{}, err
	}
	template, err := c.f.readTemplate()
	if err != nil {
		return platform{}, err
	}
	if err := c.makeEvents(config); err != nil {
		return platform{}, err
	}
	classes, err := hold.New(hold.Config{Client: config, ControllerName: controllerName, Log: c.log})
	if err != nil {
		return platform{}, err
	}
	fronts, err := provision.New(provision.Config{
		Client: config, Namespace: c.f.releaseNamespace, Namespaces: c.f.watched(), Selector: selector, Template: template, Overlap: c.f.proxyOverlap,
		OnLack: c.lack, Tell: c.warn, Log: c.log,
	})
	if err != nil {
		return platform{}, err
	}
	seeding, err := c.seeding(config)
	if err != nil {
		return platform{}, err
	}
	if err := c.makeClaim(config); err != nil {
		return platform{}, err
	}
	term := &election.Term{}
	leader, err := c.elect(config, append([]run.Part{
		c.reign(term),
		{Name: "provisioning", Run: fronts.Run},
		{Name: "verdicts", Run: func(ctx context.Context) error { return c.verdicts.tell(ctx, c.events, c.pipeline.Object) }},
		{Name: "refusals", Run: func(ctx context.Context) error { return c.refused.tell(ctx, c.events, c.pipeline.Object) }},
		{Name: "classes in use", Run: classes.Run},
		{Name: "last good versions", Run: keeper.Run},
		{Name: "webhook caBundle", Run: c.leadBundle},
		{Name: "projection", Run: projected.Run},
	}, seeding...))
	if err != nil {
		return platform{}, err
	}
	return platform{
		caPlace:   "Secret " + c.f.releaseNamespace + "/" + c.f.caSecret,
		store:     store,
		publisher: leaderPublisher{bundle, term},
		attester:  reviewer,
		owners:    owners,
		sink:      leaderSink{sink, term},
		pods:      pods,
		docket:    leaderDocket{convictions, term},
		fronts:    observed{fronts, classes, projected},
		follow:    looking(source.Run, keeper),
		lacks:     source.Lacks,
		bootstrap: listening(c.f.discoveryBind, c.f.bootstrapPort),
		stream:    listening(c.f.discoveryBind, c.f.streamPort),
		parts: append(c.ports(),
			leader,
			run.Part{Name: "claim", Run: c.claim.Run},
			run.Part{Name: "events", Run: c.events.Run},
			run.Part{Name: "pods of proxies", Run: pods.Run},
			run.Part{Name: "looks at last good versions", Run: func(ctx context.Context) error { return c.watchKey(ctx, keeper) }},
			run.Part{Name: "inspection", Run: func(ctx context.Context) error {
				return inspect.ServeLoopback(ctx, c.f.inspectPort, c.handler())
			}},
		),
	}, nil
}

// observed has others see what fronts see.
type observed struct {
	pipeline.Fronts
	classes   *hold.Engine
	projected *projection.Engine
}

// Update implements pipeline.Fronts.
func (o observed) Update(changes []object.Change, wanted map[key.Name]*front.Front, complete bool) {
	o.classes.Observe(changes, complete)
	o.projected.Observe(changes, complete)
	o.Fronts.Update(changes, wanted, complete)
}

// show has those who write to the API see what is there of it.
func (c *controller) show(sink *statuskube.Sink, projected *projection.Engine) func(object.Key, object.Object) {
	return func(k object.Key, o object.Object) {
		projected.Seen(k, o)
		if sink.Has(k.Kind) {
			c.statuses.Seen(k, o.GetUID(), sink.HasOurs(o), func(d status.Document) bool { return sink.Shows(o, d) })
		}
	}
}

// listening opens a listener when it is asked for.
func listening(address string, port uint16) func(context.Context) (net.Listener, error) {
	return func(ctx context.Context) (net.Listener, error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(int(port))))
	}
}
