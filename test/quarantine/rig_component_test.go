//go:build component

package quarantine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryk8s "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/attest"
	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/discovery/server"
	"aether.io/aether/internal/envoy"
	envoyboot "aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/pipeline"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/test/instance"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/internal/world"
	"aether.io/aether/internal/xds"
)

const (
	release  = "aether-system"
	poison   = "/poison"
	patience = 30 * time.Second
)

// poisoned is a routing graph that gets one thing wrong: what it makes of a route with
// the path poison is something that Envoy refuses. It stands for every mistake that gets
// past our own validation.
type poisoned struct {
	*routing.Graph
	tries *atomic.Int64
}

func (p poisoned) Update(changes []object.Change, held map[object.Key]object.Object) routing.Delta {
	return spoilAll(p.Graph.Update(changes, held))
}

func (p poisoned) Try(s scope.Scope, of resource.Name, held map[object.Key]object.Object) *resource.Resource {
	p.tries.Add(1)
	r := p.Graph.Try(s, of, held)
	if r != nil && bytes.Contains(r.Payload, []byte(poison)) {
		return spoil(r)
	}
	return r
}

func spoilAll(d routing.Delta) routing.Delta {
	for _, w := range d.Worlds {
		for i, r := range w.Changed {
			if r.TypeURL == envoy.ScopedRouteType && bytes.Contains(r.Payload, []byte(poison)) {
				w.Changed[i] = spoil(r)
			}
		}
	}
	return d
}

// spoil gives the resource a route with a regular expression that does not parse.
func spoil(r *resource.Resource) *resource.Resource {
	var m routev3.ScopedRouteConfiguration
	if err := proto.Unmarshal(r.Payload, &m); err != nil {
		panic(err)
	}
	vh := m.RouteConfiguration.VirtualHosts[0]
	vh.Routes = append(vh.Routes, &routev3.Route{
		Match:  &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "("}}},
		Action: &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: 200}},
	})
	out, err := resource.New(r.Name.Name, &m, r.Origin...)
	if err != nil {
		panic(err)
	}
	return out
}

// memory is a status sink.
type memory struct {
	mu   sync.Mutex
	docs map[object.Key]status.Document
}

func (m *memory) Write(_ context.Context, d status.Document) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs[d.Key] = d
	return true, nil
}

func (m *memory) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.docs)
}

func (m *memory) Remove(_ context.Context, k object.Key, _ types.UID) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.docs, k)
	return nil
}

// nobody records nothing.
type nobody struct{}

func (nobody) Record(pipeline.Batch, routing.Delta)                 {}
func (nobody) Judged(map[object.Key]string, map[resource.Name]bool) {}

// rig is the whole system in one process, but for Envoy. Its controller can be started anew.
type rig struct {
	t        *testing.T
	dir      string
	streams  string // address, empty before the first controller
	boots    string // address
	pipeline *pipeline.Pipeline
	statuses *memory
	tries    atomic.Int64 // copies that were made
	stop     func()       // ends the controller
	port     int
	client   *http.Client
	sequence uint64
	objects  map[object.Key]object.Object
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The names of who takes part.
var (
	td  = must(spiffeid.ParseTrustDomain("cluster.local"))
	id  = must(spiffeid.Controller(td, release))
	pod = spiffeid.Pod{Name: "proxy", UID: "uid", Node: "node"}
)

// start wires controller and proxy over real mutual TLS, and starts an Envoy.
func start(t *testing.T) *rig {
	t.Helper()
	path := os.Getenv("AETHER_ENVOY")
	if path == "" {
		t.Fatal("AETHER_ENVOY does not name an Envoy: run make component")
	}
	r := &rig{
		t: t, dir: t.TempDir(), statuses: &memory{docs: map[object.Key]status.Document{}}, objects: map[object.Key]object.Object{},
		client: &http.Client{Timeout: 5 * time.Second},
	}
	r.port = must(instance.FreeOffset(0))
	token := attest.NewToken()
	if err := errors.Join(
		attest.WriteTokenFile(r.at("tokens.json"), []attest.Entry{{Token: token, Identity: attest.Identity{Namespace: release, ServiceAccount: spiffeid.SharedProxyAccount, Pod: pod}}}),
		os.WriteFile(r.at("token"), []byte(token.Reveal()), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	r.controller()
	t.Cleanup(func() { r.stop() })
	local := must(xds.New(xds.Config{Socket: r.at("xds.sock"), AdminSocket: r.at("admin.sock"), StateDir: r.at("last-good")}))
	source := must(identity.New(identity.Config{
		Endpoint: "https://" + r.boots, TokenPath: r.at("token"), BundlePath: r.at("ca.crt"), TrustDomain: td, ServerID: id,
	}))
	stream := must(client.New(client.Config{Endpoint: "https://" + r.streams, Identity: source, Applier: local, Scope: scope.SharedPool(), NodeID: pod.Name}))
	t.Cleanup(r.run(local.Run, source.Run, stream.Run))
	r.envoy(path, r.dir)
	return r
}

func (r *rig) at(name string) string { return filepath.Join(r.dir, name) }

// controller starts a controller that knows what is in its files, at the address of the
// one before.
func (r *rig) controller() {
	authority := must(ca.New(ca.Config{Store: ca.FileStore{Dir: r.at("ca")}, Publisher: ca.BundleFile{Path: r.at("ca.crt")}, TrustDomain: td}))
	w := world.New(world.Config{})
	statuses := must(status.New(status.Config{Observer: w, Sink: r.statuses}))
	graph := must(routing.New(routing.Config{ControllerName: "config.aether.io/gateway-controller", ReleaseNamespace: release, Address: "127.0.0.1", PortOffset: uint32(r.port)}))
	p := must(pipeline.New(pipeline.Config{
		Graph: poisoned{graph, &r.tries}, World: w, Statuses: statuses, Recorder: nobody{}, Store: docket.File{Path: r.at("convictions.json")},
	}))
	issuer := must(bootstrap.New(bootstrap.Config{Attester: attest.NewTokenFile(r.at("tokens.json")), Allow: bootstrap.AllowList{ReleaseNamespace: release}, CA: authority, TrustDomain: td}))
	streams := must(server.New(server.Config{
		TrustDomain: td, Authorizer: server.Rule{TrustDomain: td, ReleaseNamespace: release, Gateways: p},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			return w.Subscribe(ctx, s, p, have, superseded)
		},
	}))
	if err := p.Recall(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	r.pipeline = p
	streamListener, bootListener := must(net.Listen("tcp", or(r.streams, "127.0.0.1:0"))), must(net.Listen("tcp", or(r.boots, "127.0.0.1:0")))
	r.streams, r.boots = streamListener.Addr().String(), bootListener.Addr().String()
	ready := func(serve func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-authority.Ready():
				return serve(ctx)
			}
		}
	}
	r.stop = r.run(authority.Run, w.Run, p.Run, statuses.Run,
		ready(func(ctx context.Context) error { return issuer.Serve(ctx, bootListener, authority.ServerTLS(id)) }),
		ready(func(ctx context.Context) error { return streams.Serve(ctx, streamListener, authority.MutualTLS(id)) }),
	)
	<-authority.Ready()
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// restart ends the controller, and starts another one that finds these objects edited.
func (r *rig) restart(edited ...object.Object) {
	r.t.Helper()
	r.stop()
	r.statuses.forget()
	for _, o := range edited {
		r.objects[keyOf(o)] = o
	}
	r.controller()
	r.apply(slices.Collect(maps.Values(r.objects))...)
}

// run runs parts until stop is called.
func (r *rig) run(parts ...func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, part := range parts {
		running.Go(func() {
			if err := part(ctx); err != nil && !errors.Is(err, context.Canceled) {
				r.t.Error(err)
			}
		})
	}
	return func() { cancel(); running.Wait() }
}

func (r *rig) envoy(path, dir string) {
	r.t.Helper()
	text := must(envoyboot.New(envoyboot.Config{NodeID: "proxy", Cluster: "test", XDSSocket: filepath.Join(dir, "xds.sock"), AdminSocket: filepath.Join(dir, "admin.sock")}))
	file := filepath.Join(dir, "bootstrap.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := exec.Command(path, "--config-path", file, "--log-level", "warn", "--concurrency", "1", "--disable-hot-restart")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

// apply takes objects in, as one batch.
func (r *rig) apply(objects ...object.Object) {
	r.sequence++
	b := pipeline.Batch{Synced: true, Mark: watermark.Mark{Epoch: 1, Positions: map[string]uint64{"all": r.sequence}}, Noticed: time.Now()}
	for _, o := range objects {
		r.objects[keyOf(o)] = o
		b.Changes = append(b.Changes, object.Change{Key: keyOf(o), Object: o})
	}
	r.pipeline.Apply(b)
}

func keyOf(o object.Object) object.Key {
	return object.Key{Kind: object.Kind(o.GetObjectKind().GroupVersionKind().Kind), Namespace: o.GetNamespace(), Name: o.GetName()}
}

func decode[T object.Object](into T, text string) T {
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		panic(fmt.Errorf("%w in\n%s", err, text))
	}
	into.SetGeneration(1)
	return into
}

// gateway is a class, parameters and a Gateway on port 0, which the offset makes r.port.
func gateway(routeScopes string) []object.Object {
	return []object.Object{
		decode(&gatewayv1.GatewayClass{}, "kind: GatewayClass\nmetadata: {name: coxswain}\nspec: {controllerName: config.aether.io/gateway-controller}"),
		decode(&configv1.GatewayParameters{}, "kind: GatewayParameters\nmetadata: {name: p, namespace: default}\nspec: {mode: Shared, routeScopes: "+routeScopes+"}"),
		decode(&gatewayv1.Gateway{}, `
kind: Gateway
metadata: {name: web, namespace: default}
spec:
  gatewayClassName: coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: p}}
  listeners: [{name: http, protocol: HTTP, port: 1, allowedRoutes: {namespaces: {from: Same}}}]`),
	}
}

func service(t *testing.T, name string) []object.Object {
	t.Helper()
	b, err := instance.StartBackend(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return []object.Object{
		decode(&corev1.Service{}, "kind: Service\nmetadata: {name: "+name+", namespace: default}\nspec: {ports: [{port: 80, protocol: TCP, targetPort: 80}]}"),
		decode(&discoveryk8s.EndpointSlice{}, fmt.Sprintf("kind: EndpointSlice\nmetadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}\naddressType: IPv4\nports: [{name: '', port: %[2]d, protocol: TCP}]\nendpoints: [{addresses: [127.0.0.1]}]", name, b.Port)),
	}
}

// route sends its host to a backend; the generation tells its versions apart.
func route(name, backend string, generation int64, bad bool) *gatewayv1.HTTPRoute {
	o := decode(&gatewayv1.HTTPRoute{}, fmt.Sprintf(`
kind: HTTPRoute
metadata: {name: %[1]s, namespace: default}
spec:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: web}]
  hostnames: [%[1]s.example.com]
  rules: [{matches: [{path: {type: PathPrefix, value: /}}], backendRefs: [{group: "", kind: Service, name: %[2]s, port: 80, weight: 1}]}]`, name, backend))
	o.Generation = generation
	if bad {
		exact, value := gatewayv1.PathMatchExact, poison
		o.Spec.Rules[0].Matches = append(o.Spec.Rules[0].Matches, gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: &exact, Value: &value}})
	}
	return o
}

func (r *rig) get(host string) string {
	req := must(http.NewRequestWithContext(r.t.Context(), http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", r.port+1), http.NoBody))
	req.Host = host
	resp, err := r.client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var b strings.Builder
	_ = resp.Write(&b)
	return fmt.Sprintf("%d %s", resp.StatusCode, b.String()[strings.LastIndex(b.String(), "\n")+1:])
}

func (r *rig) eventually(what, want string, got func() string) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		seen := got()
		if strings.HasPrefix(seen, want) {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("gave up waiting until %s is %q; last seen %q", what, want, seen)
		}
		<-tick.C
	}
}

func (r *rig) answers(name, want string) {
	r.t.Helper()
	r.eventually(name, want, func() string { return r.get(name + ".example.com") })
}

// programmed is the observed condition of a route.
func (r *rig) programmed(name string) string {
	r.statuses.mu.Lock()
	defer r.statuses.mu.Unlock()
	d := r.statuses.docs[object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: name}]
	s, ok := d.Status.(*gatewayv1.HTTPRouteStatus)
	if !ok || len(s.Parents) == 0 {
		return "no status"
	}
	for _, c := range s.Parents[0].Conditions {
		if c.Type == status.RouteProgrammed {
			return fmt.Sprintf("%s %s at %d: %s", c.Status, c.Reason, c.ObservedGeneration, c.Message)
		}
	}
	return "no condition"
}

func (r *rig) conditionBecomes(name, want string) {
	r.t.Helper()
	r.eventually(name+"'s Programmed", want, func() string { return r.programmed(name) })
}

// watch asks all of the routes again and again until stop is called, which returns what
// was answered that is not 200.
func (r *rig) watch(names ...string) (stop func() []string) {
	done := make(chan struct{})
	var asking sync.WaitGroup
	var mu sync.Mutex
	var bad []string
	for worker := range 2 {
		asking.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for i := worker; ; i++ {
				select {
				case <-done:
					return
				case <-tick.C:
				}
				name := names[i%len(names)]
				if got := r.get(name + ".example.com"); !strings.HasPrefix(got, "200 ") {
					mu.Lock()
					bad = append(bad, name+": "+got)
					mu.Unlock()
				}
			}
		})
	}
	return func() []string { close(done); asking.Wait(); return bad }
}

// convictions is what is kept.
func (r *rig) convictions() map[object.Key]quarantine.Conviction {
	r.t.Helper()
	kept, err := docket.File{Path: r.at("convictions.json")}.Load(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return kept
}

// settled waits until exactly the bad ones are refused, at their newest versions, and that
// is kept.
func (r *rig) settled(bad map[string]bool) {
	r.t.Helper()
	for k, o := range r.objects {
		if k.Kind != object.HTTPRoute {
			continue
		}
		status := "True Programmed"
		if bad[k.Name] {
			status = "False RefusedByProxy"
		}
		r.conditionBecomes(k.Name, fmt.Sprintf("%s at %d:", status, o.GetGeneration()))
		r.eventually("whether the conviction of "+k.Name+" is kept", fmt.Sprint(bad[k.Name]), func() string {
			v, is := r.convictions()[k]
			return fmt.Sprint(is && v.Content == quarantine.ContentOf(o))
		})
	}
}
