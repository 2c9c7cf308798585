//go:build component

package quarantine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	discoveryk8s "k8s.io/api/discovery/v1"
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
type poisoned struct{ *routing.Graph }

func (p poisoned) Apply(changes []object.Change) routing.Delta {
	return spoilAll(p.Graph.Apply(changes))
}

func (p poisoned) Hold(held map[object.Key]object.Object) routing.Delta {
	return spoilAll(p.Graph.Hold(held))
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

func (m *memory) Write(_ context.Context, d status.Document) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.docs[d.Key] = d
	return nil
}

func (m *memory) KeepOnly(context.Context, []object.Key) error { return nil }

func (m *memory) Remove(_ context.Context, k object.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.docs, k)
	return nil
}

// nobody records nothing.
type nobody struct{}

func (nobody) Record(pipeline.Batch, routing.Delta) {}

// rig is the whole system in one process, but for Envoy.
type rig struct {
	t        *testing.T
	pipeline *pipeline.Pipeline
	statuses *memory
	port     int
	client   *http.Client
	sequence uint64
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// start wires controller and proxy over real mutual TLS, and starts an Envoy.
func start(t *testing.T) *rig {
	t.Helper()
	path := os.Getenv("AETHER_ENVOY")
	if path == "" {
		t.Fatal("AETHER_ENVOY does not name an Envoy: run make component")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	r := &rig{t: t, statuses: &memory{docs: map[object.Key]status.Document{}}, client: &http.Client{Timeout: 5 * time.Second}}
	r.port = must(instance.FreeOffset(0))
	td := must(spiffeid.ParseTrustDomain("cluster.local"))
	id := must(spiffeid.Controller(td, release))

	authority := must(ca.New(ca.Config{Store: ca.FileStore{Dir: at("ca")}, Publisher: ca.BundleFile{Path: at("ca.crt")}, TrustDomain: td}))
	w := world.New(world.Config{})
	statuses := must(status.New(status.Config{Observer: w, Sink: r.statuses}))
	graph := must(routing.New(routing.Config{ControllerName: "config.aether.io/gateway-controller", ReleaseNamespace: release, Address: "127.0.0.1", PortOffset: uint32(r.port)}))
	r.pipeline = must(pipeline.New(pipeline.Config{
		Graph: poisoned{graph}, World: w, Statuses: statuses, Recorder: nobody{},
	}))
	token := attest.NewToken()
	pod := spiffeid.Pod{Name: "proxy", UID: "uid", Node: "node"}
	if err := errors.Join(
		attest.WriteTokenFile(at("tokens.json"), []attest.Entry{{Token: token, Identity: attest.Identity{Namespace: release, ServiceAccount: spiffeid.SharedProxyAccount, Pod: pod}}}),
		os.WriteFile(at("token"), []byte(token.Reveal()), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	issuer := must(bootstrap.New(bootstrap.Config{Attester: attest.NewTokenFile(at("tokens.json")), Allow: bootstrap.AllowList{ReleaseNamespace: release}, CA: authority, TrustDomain: td}))
	streams := must(server.New(server.Config{
		TrustDomain: td, Authorizer: server.Rule{TrustDomain: td, ReleaseNamespace: release, Gateways: r.pipeline},
		Subscribe: func(ctx context.Context, s scope.Scope, p fleet.Peer, have snapshot.Have, superseded func()) (server.Subscription, error) {
			return w.Subscribe(ctx, s, p, have, superseded)
		},
	}))
	local := must(xds.New(xds.Config{Socket: at("xds.sock"), AdminSocket: at("admin.sock"), StateDir: at("last-good")}))
	streamListener, bootListener := must(net.Listen("tcp", "127.0.0.1:0")), must(net.Listen("tcp", "127.0.0.1:0"))
	source := must(identity.New(identity.Config{
		Endpoint: "https://" + bootListener.Addr().String(), TokenPath: at("token"), BundlePath: at("ca.crt"), TrustDomain: td, ServerID: id,
	}))
	stream := must(client.New(client.Config{Endpoint: "https://" + streamListener.Addr().String(), Identity: source, Applier: local, Scope: scope.SharedPool(), NodeID: pod.Name}))

	r.run(authority.Run)
	<-authority.Ready()
	r.run(w.Run)
	r.run(r.pipeline.Run)
	r.run(statuses.Run)
	r.run(func(ctx context.Context) error { return issuer.Serve(ctx, bootListener, authority.ServerTLS(id)) })
	r.run(func(ctx context.Context) error { return streams.Serve(ctx, streamListener, authority.MutualTLS(id)) })
	r.run(local.Run)
	r.run(source.Run)
	r.run(stream.Run)
	r.envoy(path, dir)
	return r
}

// run runs a part until the test ends.
func (r *rig) run(part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	r.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			r.t.Error(err)
		}
	})
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
		k := object.Key{Kind: object.Kind(o.GetObjectKind().GroupVersionKind().Kind), Namespace: o.GetNamespace(), Name: o.GetName()}
		b.Changes = append(b.Changes, object.Change{Key: k, Object: o})
	}
	r.pipeline.Apply(b)
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
