//go:build component

package xds

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	caresv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/network/dns_resolver/cares/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/xds/probe"
)

const bootstrap = `
node: {id: node, cluster: cluster}
admin: {address: {pipe: {path: DIR/admin.sock, mode: 384}}}
layered_runtime: {layers: [{name: aether, rtds_layer: {name: aether, rtds_config: {resource_api_version: V3, ads: {}}}}]}
dynamic_resources:
  ads_config: {api_type: DELTA_GRPC, transport_api_version: V3, grpc_services: [{envoy_grpc: {cluster_name: xds}}]}
  lds_config: {resource_api_version: V3, ads: {}}
  cds_config: {resource_api_version: V3, ads: {}}
static_resources:
  clusters:
  - name: xds
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment: {cluster_name: xds, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: DIR/xds.sock}}}}]}]}
`

// rig is one Envoy, the server beside it, a backend, and a world to serve.
type rig struct {
	*world
	dir    string
	srv    *Server
	stop   context.CancelFunc
	done   chan error
	envoy  *exec.Cmd
	log    bytes.Buffer
	mu     sync.Mutex
	port   int // of the listener
	back   int // of the backend
	args   []string
	client *http.Client
}

// newRig starts Envoy with the arguments beside the usual ones.
func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	dir := t.TempDir()
	back := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }))
	t.Cleanup(back.Close)
	r := &rig{world: newWorld(t), dir: dir, back: back.Listener.Addr().(*net.TCPAddr).Port, port: freePort(t), args: args}
	r.client = &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 4}}
	t.Cleanup(r.client.CloseIdleConnections)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("server log:\n%s", r.logs())
			if b, err := os.ReadFile(filepath.Join(dir, "envoy.log")); err == nil {
				t.Logf("envoy log:\n%s", b[max(0, len(b)-8000):])
			}
		}
	})
	r.serve()
	r.startEnvoy()
	return r
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) logs() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

func (r *rig) serve() {
	r.t.Helper()
	srv, err := New(Config{
		Socket: r.dir + "/xds.sock", AdminSocket: r.dir + "/admin.sock", StateDir: r.dir + "/state",
		Log: slog.New(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	r.srv, r.done = srv, done
	once := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Errorf("run: %v", err)
		}
	})
	r.stop = once
	r.t.Cleanup(once)
}

func (r *rig) startEnvoy() {
	r.t.Helper()
	bin := os.Getenv("AETHER_ENVOY")
	if bin == "" {
		r.t.Fatal("this test needs a real Envoy 1.40.0: set AETHER_ENVOY to its path")
	}
	if err := os.WriteFile(r.dir+"/b.yaml", []byte(strings.ReplaceAll(bootstrap, "DIR", r.dir)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	out, err := os.OpenFile(r.dir+"/envoy.log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"-c", r.dir + "/b.yaml", "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "info"}, r.args...)
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.envoy = cmd
	r.t.Cleanup(func() { r.kill(cmd) })
}

func (r *rig) kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (r *rig) apply(full bool) resource.Outcome {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	u := r.update(full)
	o, err := r.srv.Apply(ctx, u)
	if err != nil {
		r.t.Fatalf("apply: %v; observed %+v", err, r.srv.Observed())
	}
	if got := r.srv.Held().Version; got != u.Version {
		r.t.Fatalf("held %s after apply of %s", got, u.Version)
	}
	return o
}

// timed applies what has changed and says when that began and how long it took, without
// the time to find out what has.
func (r *rig) timed() (took time.Duration, start time.Time) {
	r.t.Helper()
	u := r.update(false)
	start = time.Now()
	o, err := r.srv.Apply(context.Background(), u)
	took = time.Since(start)
	if err != nil {
		r.t.Fatal(err)
	}
	r.clean(o)
	return took, start
}

func (r *rig) clean(o resource.Outcome) {
	r.t.Helper()
	if len(o.Pending)+len(o.Refused) > 0 {
		r.t.Fatalf("outcome %+v, want nothing refused or pending", o)
	}
}

func (r *rig) get(host string) int {
	code, err := r.try(host)
	if err != nil {
		r.t.Errorf("get %s: %v", host, err)
	}
	return code
}

func (r *rig) try(host string) (int, error) {
	req, _ := http.NewRequest(http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", r.port), nil)
	req.Host = host
	res, err := r.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode, nil
}

func (r *rig) want(host string, code int) {
	r.t.Helper()
	if got := r.get(host); got != code {
		r.t.Errorf("%s answers %d, want %d", host, got, code)
	}
}

// stat reads one of Envoy's counters.
func (r *rig) stat(name string) uint64 {
	r.t.Helper()
	var out struct {
		Stats []struct {
			Name  string `json:"name"`
			Value uint64 `json:"value"`
		} `json:"stats"`
	}
	admin := probe.Admin(r.dir + "/admin.sock")
	defer admin.CloseIdleConnections()
	if err := probe.Ask(context.Background(), admin, "/stats?format=json&filter=^"+name+"$", &out); err != nil {
		r.t.Fatal(err)
	}
	if len(out.Stats) == 0 {
		return 0
	}
	return out.Stats[0].Value
}

// until waits for what the server observes.
func (r *rig) until(what string, ok func(resource.Observed) bool) {
	r.t.Helper()
	deadline := time.After(30 * time.Second)
	for !ok(r.srv.Observed()) {
		select {
		case <-r.srv.Observe():
		case <-deadline:
			r.t.Fatalf("not seen: %s; observed %+v", what, r.srv.Observed())
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// hammer requests hosts without pause until stopped, and counts codes.
func (r *rig) hammer(hosts ...string) (stop func() map[string]int) {
	codes, mu := map[string]int{}, sync.Mutex{}
	var over atomic.Bool
	var wg sync.WaitGroup
	for _, h := range hosts {
		wg.Go(func() {
			for !over.Load() {
				code, err := r.try(h)
				key := fmt.Sprint(h, " ", code)
				if err != nil {
					key = h + " " + err.Error()
				}
				mu.Lock()
				codes[key]++
				mu.Unlock()
			}
		})
	}
	return func() map[string]int {
		over.Store(true)
		wg.Wait()
		return codes
	}
}

func onlyOK(t *testing.T, codes map[string]int) {
	t.Helper()
	for k, n := range codes {
		if !strings.HasSuffix(k, " 200") {
			t.Errorf("%d times %q, want only 200", n, k)
		}
	}
	if len(codes) == 0 {
		t.Error("no requests were made")
	}
}

func TestEnvoyIsConfigured(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.trustBundle()
	r.clean(r.apply(true))
	r.want(host(0), 200)
	r.want("other.test", 404)
	o := r.srv.Observed()
	if !o.Configured || !o.EnvoyConnected || o.EnvoyVersion != "1.40.0" || !slices.Equal(o.BoundPorts, []uint32{uint32(r.port)}) {
		t.Errorf("observed %+v", o)
	}
}

func TestNewHostAndClusterWithoutAGap(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	stop := r.hammer(host(0))
	for i := 1; i <= 30; i++ {
		// The host's first 200 may not be preceded by anything but 404.
		seen, ended := make(chan int, 1), make(chan struct{})
		go func() {
			defer close(ended)
			for {
				code, err := r.try(host(i))
				if err != nil || code != 404 {
					seen <- code
					return
				}
			}
		}()
		r.service(i, r.back)
		r.clean(r.apply(false))
		if code := <-seen; code != 200 {
			t.Errorf("host %d answered %d before 200", i, code)
		}
		<-ended
		r.want(host(i), 200)
	}
	onlyOK(t, stop())
}

func TestChangedClusterDoesNotStall(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	c := r.service(0, r.back)
	r.clean(r.apply(true))
	stop := r.hammer(host(0))
	for i := range 20 {
		r.cluster(c, connectTimeout(time.Duration(i+2)*time.Second))
		r.clean(r.apply(false))
	}
	onlyOK(t, stop())
	if got := r.stat("cluster." + c + ".init_fetch_timeout"); got != 0 {
		t.Errorf("Envoy gave up waiting for the endpoints %d times", got)
	}
	if got := r.stat("cluster_manager.cluster_modified"); got != 20 {
		t.Errorf("%d clusters modified, want 20", got)
	}
}

func TestOneBadScopeOfAHundred(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	for i := range 100 {
		r.service(i, r.back)
	}
	bad := r.badScope(host(42))
	o := r.apply(true)
	if len(o.Refused) != 1 || o.Refused[0].Name != bad || !strings.Contains(o.Refused[0].Detail, "missing )") {
		t.Fatalf("outcome %+v, want %s refused", o, bad)
	}
	for i := range 100 {
		if want := map[bool]int{true: 404, false: 200}[i == 42]; r.get(host(i)) != want {
			t.Errorf("%s does not answer %d", host(i), want)
		}
	}
	// It is not sent again unchanged, and accepted when it has changed.
	before := r.stat("http.in.scoped_rds.scopes.update_rejected")
	r.scope("more.test", "ns/svc1/80")
	if o = r.apply(false); len(o.Refused) != 1 {
		t.Errorf("outcome %+v, want still refused", o)
	}
	if got := r.stat("http.in.scoped_rds.scopes.update_rejected"); got != before || before == 0 {
		t.Errorf("refusals went from %d to %d", before, got)
	}
	r.scope(host(42), "ns/svc42/80")
	r.clean(r.apply(false))
	r.want(host(42), 200)
	// A live one that goes bad keeps what it had.
	r.badScope(host(7))
	if o = r.apply(false); len(o.Refused) != 1 {
		t.Errorf("outcome %+v, want one refused", o)
	}
	r.want(host(7), 200)
}

func TestBadOnesAmongGoodOnes(t *testing.T) {
	r := newRig(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	r.listener("l", r.port)
	for i := range 10 {
		r.service(i, r.back)
	}
	badCluster := r.cluster("ns/bad/80", func(c *clusterv3.Cluster) {
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{Name: "nope"}}
	})
	undecodable := r.cluster("ns/duration/80", func(c *clusterv3.Cluster) { c.ConnectTimeout = durationpb.New(-time.Second) })
	badEDS := r.badEndpoints("ns/svc3/80")
	badListener := r.listener("taken", taken.Addr().(*net.TCPAddr).Port)
	o := r.apply(true)
	var got []resource.Name
	for _, f := range o.Refused {
		got = append(got, f.Name)
		t.Logf("%s: %s", f.Name, f.Detail)
	}
	want := []resource.Name{badCluster, undecodable, badEDS, badListener}
	slices.SortFunc(want, resource.Name.Compare)
	if !slices.Equal(got, want) {
		t.Fatalf("refused %v, want %v; pending %v", got, want, o.Pending)
	}
	for i := range 10 {
		r.want(host(i), map[bool]int{true: 503, false: 200}[i == 3])
	}
	// The port becomes free: nothing changes but the machine.
	taken.Close()
	r.until("the listener is accepted after all", func(o resource.Observed) bool { return len(o.Refused) == 3 && len(o.BoundPorts) == 2 })
}

func TestRemovalsComeAfterWhatReplacesThem(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	stop := r.hammer(host(0), host(0))
	old := "ns/svc0/80"
	for i := 1; i <= 40; i++ {
		c := fmt.Sprintf("ns/next%d/80", i)
		r.cluster(c)
		r.endpoints(c, r.back)
		r.scope(host(0), c)
		r.drop(resource.Name{TypeURL: envoy.ClusterType, Name: old})
		r.drop(resource.Name{TypeURL: envoy.EndpointType, Name: old})
		r.clean(r.apply(false))
		old = c
	}
	onlyOK(t, stop())
	if got := r.stat("cluster_manager.active_clusters"); got != 2 {
		t.Errorf("%d clusters, want the new one and the static one", got)
	}
}

func TestListenerTakesOverThePortOfAnother(t *testing.T) {
	r := newRig(t)
	r.listener("l0", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	for i := range 5 {
		r.drop(resource.Name{TypeURL: envoy.ListenerType, Name: fmt.Sprintf("l%d", i)})
		r.listener(fmt.Sprintf("l%d", i+1), r.port)
		r.clean(r.apply(false))
		r.want(host(0), 200)
	}
}

func TestListenersComeBackAfterAllWereGone(t *testing.T) {
	r := newRig(t)
	l := r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	r.drop(l)
	r.clean(r.apply(false))
	r.until("the port is free", func(o resource.Observed) bool { return len(o.BoundPorts) == 0 })
	r.service(1, r.back)
	r.clean(r.apply(false))
	r.drop(scopeName(host(0)))
	r.clean(r.apply(false))
	r.listener("l", r.port)
	r.clean(r.apply(false))
	r.want(host(0), 404)
	r.want(host(1), 200)
}

func TestEnvoyIsKilledAndConfiguredAgain(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	for i := range 20 {
		r.service(i, r.back)
	}
	r.clean(r.apply(true))
	r.kill(r.envoy)
	r.until("it is gone", func(o resource.Observed) bool {
		return !o.EnvoyConnected && !o.Configured && len(o.BoundPorts) == 0
	})
	r.startEnvoy()
	r.until("the new one is configured", func(o resource.Observed) bool { return o.Configured })
	if code, err := r.try(host(0)); code != http.StatusOK {
		t.Errorf("configured, and answers %d, %v", code, err)
	}
	r.kill(r.envoy)
	r.until("it is gone again", func(o resource.Observed) bool { return !o.EnvoyConnected && !o.Configured })
	// An update that comes meanwhile is kept for the next one, and until then pending.
	r.service(20, r.back)
	u := r.update(false)
	if o, err := r.srv.Apply(t.Context(), u); err != nil || len(o.Pending) != len(u.Changed) || len(o.Refused) > 0 {
		t.Fatalf("without an Envoy: %+v, %v", o, err)
	}
	r.startEnvoy()
	r.until("the newest is live", func(o resource.Observed) bool {
		return o.Version == u.Version && o.Configured && len(o.Pending)+len(o.Refused) == 0
	})
	for i := range 21 {
		r.want(host(i), 200)
	}
}

func TestLateRefusalAfterRestartHealsByItself(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	r.kill(r.envoy)
	taken, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", r.port))
	if err != nil {
		t.Fatal(err)
	}
	r.startEnvoy()
	r.until("the listener is refused", func(o resource.Observed) bool { return len(o.Refused) == 1 && o.EnvoyConnected })
	taken.Close()
	r.until("the listener is back", func(o resource.Observed) bool { return len(o.Refused) == 0 && len(o.BoundPorts) == 1 })
	r.want(host(0), 200)
}

func TestServerRestartDisturbsNothing(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	for i := range 50 {
		r.service(i, r.back)
	}
	bad := r.badScope(host(13))
	if o := r.apply(true); len(o.Refused) != 1 {
		t.Fatalf("outcome %+v", o)
	}
	held := r.srv.Held()
	stop := r.hammer(host(0), host(49))
	r.stop()
	r.serve()
	r.until("configured from last-good", func(o resource.Observed) bool { return o.Configured && o.EnvoyConnected })
	again := r.srv.Held()
	if again.Version != held.Version || len(again.Resources) != len(held.Resources) ||
		len(again.Refused) != 1 || again.Refused[0].Name != bad || again.Mark.Positions["Service"] != 1 {
		t.Errorf("held %s, %d resources, %v", again.Version, len(again.Resources), again.Refused)
	}
	r.service(50, r.back)
	if o := r.apply(false); len(o.Refused) != 1 || len(o.Pending) != 0 {
		t.Errorf("outcome %+v", o)
	}
	r.want(host(50), 200)
	onlyOK(t, stop())
	for stat, want := range map[string]uint64{
		"listener_manager.listener_modified": 0, "listener_manager.total_filter_chains_draining": 0,
		"listener_manager.listener_removed": 0, "cluster_manager.cluster_modified": 0, "cluster_manager.cluster_removed": 0,
	} {
		if got := r.stat(stat); got != want {
			t.Errorf("%s is %d, want %d", stat, got, want)
		}
	}
	// What is removed while the server restarts goes.
	r.stop()
	r.serve()
	r.drop(scopeName(host(1)))
	if o := r.apply(true); len(o.Refused) != 1 {
		t.Errorf("outcome %+v", o)
	}
	r.want(host(1), 404)
	r.want(host(2), 200)
}

func TestServerWithNothingLeavesEnvoyAlone(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	r.stop()
	if err := os.RemoveAll(r.dir + "/state"); err != nil {
		t.Fatal(err)
	}
	r.serve()
	r.until("connected", func(o resource.Observed) bool { return o.EnvoyConnected })
	r.want(host(0), 200)
	if o := r.srv.Observed(); o.Configured {
		t.Errorf("observed %+v, but nothing was ever sent", o)
	}
	// The controller's first update then removes what Envoy claims and nobody wants.
	r.drop(scopeName(host(0)))
	r.scope("new.test", "ns/svc0/80")
	r.clean(r.apply(true))
	r.want(host(0), 404)
	r.want("new.test", 200)
}

func TestWarmingClusterHoldsBackOnlyWhatMentionsIt(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	r.service(0, r.back)
	r.clean(r.apply(true))
	// A resolver that never answers keeps the cluster warming.
	hole, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer hole.Close()
	slow := r.cluster("ns/slow/80", slowDNS(r.world, hole.LocalAddr().(*net.UDPAddr).Port))
	waits := r.scope("slow.test", "ns/slow/80")
	r.scope("other.test", "ns/svc0/80")
	start := time.Now()
	o := r.apply(false)
	t.Logf("applied in %v: %+v", time.Since(start), o)
	if want := []resource.Name{slow, waits}; !slices.Equal(o.Pending, want) || len(o.Refused) > 0 {
		t.Fatalf("outcome %+v, want pending %v", o, want)
	}
	r.want("other.test", 200)
	r.service(1, r.back)
	if o = r.apply(false); len(o.Pending) != 2 {
		t.Errorf("outcome %+v, want the same two pending", o)
	}
	r.want(host(1), 200)
	r.until("nothing is pending", func(o resource.Observed) bool { return len(o.Pending) == 0 })
	r.want("slow.test", 503)
}

func TestSecretsComeAfterTheListenersThatWantThem(t *testing.T) {
	r := newRig(t)
	port, late, broken := freePort(t), freePort(t), freePort(t)
	r.secret("ns/a", "a.test")
	r.tlsListener("tls", port, "ns/a")
	r.service(0, r.back)
	r.clean(r.apply(true))
	if got := r.certificate(port); got != "a.test" {
		t.Errorf("certificate of %q", got)
	}
	r.secret("ns/a", "b.test")
	r.clean(r.apply(false))
	if got := r.certificate(port); got != "b.test" {
		t.Errorf("certificate of %q after it was rotated", got)
	}
	// A listener whose secret does not exist holds back nothing: it is told so at once.
	r.tlsListener("late", late, "ns/late")
	r.clean(r.apply(false))
	if got := r.certificate(late); strings.HasSuffix(got, ".test") {
		t.Errorf("certificate of %q without a secret", got)
	}
	r.secret("ns/late", "late.test")
	r.clean(r.apply(false))
	if got := r.certificate(late); got != "late.test" {
		t.Errorf("certificate of %q", got)
	}
	// Bad ones are named, alone, and those that were good stay.
	badNew, badOld := r.badSecret("ns/broken"), r.badSecret("ns/late")
	r.secret("ns/a", "c.test")
	r.tlsListener("broken", broken, "ns/broken")
	o := r.apply(false)
	if len(o.Refused) != 2 || o.Refused[0].Name != badNew || o.Refused[1].Name != badOld {
		t.Errorf("outcome %+v, want %s and %s refused", o, badNew, badOld)
	}
	if a, l := r.certificate(port), r.certificate(late); a != "c.test" || l != "late.test" {
		t.Errorf("certificates of %q and %q", a, l)
	}
}

// certificate returns the name in the certificate that is served on the port.
func (r *rig) certificate(port int) string {
	r.t.Helper()
	c, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

func (w *world) secret(name, cn string) resource.Name {
	w.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cn}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.pemSecret(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

func (w *world) badSecret(name string) resource.Name {
	return w.pemSecret(name, []byte("no"), []byte("pem"))
}

func (w *world) pemSecret(name string, chain, key []byte) resource.Name {
	inline := func(b []byte) *corev3.DataSource {
		return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: b}}
	}
	return w.put(name, &tlsv3.Secret{Name: name, Type: &tlsv3.Secret_TlsCertificate{TlsCertificate: &tlsv3.TlsCertificate{
		CertificateChain: inline(chain), PrivateKey: inline(key),
	}}})
}

func (w *world) tlsListener(name string, port int, secret string) resource.Name {
	w.t.Helper()
	n := w.listener(name, port)
	var l listenerv3.Listener
	if err := proto.Unmarshal(w.res[n].Payload, &l); err != nil {
		w.t.Fatal(err)
	}
	l.FilterChains[0].TransportSocket = &corev3.TransportSocket{Name: "tls", ConfigType: &corev3.TransportSocket_TypedConfig{
		TypedConfig: w.any(&tlsv3.DownstreamTlsContext{CommonTlsContext: &tlsv3.CommonTlsContext{
			TlsCertificateSdsSecretConfigs: []*tlsv3.SdsSecretConfig{{Name: secret, SdsConfig: adsSource()}},
		}}),
	}}
	return w.put(name, &l)
}

func TestLatencyWithThreeThousandScopes(t *testing.T) {
	r := newRig(t)
	r.listener("l", r.port)
	for i := range 50 {
		r.service(i, r.back)
	}
	for i := range 3000 {
		r.scope(fmt.Sprintf("s%d.test", i), fmt.Sprintf("ns/svc%d/80", i%50))
	}
	start := time.Now()
	r.clean(r.apply(true))
	t.Logf("3,050 scopes: %v", time.Since(start))
	var sum, most, live, liveMost time.Duration
	const n = 40
	for i := range n {
		h := fmt.Sprintf("n%d.test", i)
		r.scope(h, "ns/svc1/80")
		ended := make(chan time.Time, 1)
		go func() {
			for {
				if code, err := r.try(h); err != nil || code == 200 {
					ended <- time.Now()
					return
				}
			}
		}()
		d, start := r.timed()
		v := (<-ended).Sub(start)
		sum, most, live, liveMost = sum+d, max(most, d), live+v, max(liveMost, v)
	}
	t.Logf("one more scope: answered after mean %v, max %v; first 200 after mean %v, max %v", sum/n, most, live/n, liveMost)
	sum, most = 0, 0
	for i := range n {
		r.service(5000+i, r.back)
		d, _ := r.timed()
		sum, most = sum+d, max(most, d)
	}
	t.Logf("one more cluster with endpoints and scope: answered after mean %v, max %v", sum/n, most)
}

// slowDNS makes a cluster that is resolved by the name server on the port.
func slowDNS(w *world, port int) func(*clusterv3.Cluster) {
	return func(c *clusterv3.Cluster) {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
		c.EdsClusterConfig = nil
		c.LoadAssignment = &endpointv3.ClusterLoadAssignment{ClusterName: c.Name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
			LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{
				Address: &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Address: "slow.invalid", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80},
				}}},
			}}}},
		}}}
		c.TypedDnsResolverConfig = &corev3.TypedExtensionConfig{
			Name: "envoy.network.dns_resolver.cares",
			TypedConfig: w.any(&caresv3.CaresDnsResolverConfig{
				Resolvers: []*corev3.Address{{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
					Protocol: corev3.SocketAddress_UDP, Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
				}}}},
				QueryTimeoutSeconds: wrapperspb.UInt64(1), QueryTries: wrapperspb.UInt32(2),
			}),
		}
	}
}
