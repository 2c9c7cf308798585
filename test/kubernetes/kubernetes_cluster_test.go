//go:build cluster

// Package kubernetes_test has the controller on a real API server, with a real proxy and a
// real Envoy beside it as processes: no node is needed to see that what is written to the
// API is served, and that what is served is told there.
package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/build"
)

const (
	namespace = "aether-system"
	account   = "coxswain-shared-proxy"
	patience  = 2 * time.Minute
	host      = "shop.example.com"
)

// rigs counts those there were.
var rigs atomic.Int32

// rig is an API server, a controller, a proxy, an Envoy and a backend. It runs beside others.
type rig struct {
	*testing.T
	address string // of loopback, its own: each has Gateways on the same ports
	server  *apiserver.Server
	core    coreclient.CoreV1Interface
	dir     string
	stream  int
	boot    int
	backend *httptest.Server
	client  *http.Client
	change  func(bootstrap []byte) []byte // what Envoys are started with; nil: what proxies write
}

func newRig(t *testing.T) *rig {
	t.Helper()
	t.Parallel()
	server := apiserver.Start(t)
	core, err := coreclient.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "ak") //nolint:usetesting // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := &rig{T: t, address: fmt.Sprintf("127.0.1.%d", rigs.Add(1)), server: server, core: core, dir: dir, client: &http.Client{Timeout: 10 * time.Second}}
	t.Cleanup(r.client.CloseIdleConnections)
	r.stream, r.boot = r.port(), r.port()
	r.kubectl("", "apply", "--server-side", "-f", root+"/internal/crd/gateway-api", "-f", root+"/charts/crds/templates")
	r.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all")
	r.serveBackend()
	built, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{controllerProgram, proxyProgram} {
		if err := os.Link(filepath.Join(built, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// Names of the programs.
const (
	controllerProgram = "aether-controller"
	proxyProgram      = "aether-proxy"
)

// programs builds them for all rigs, and returns the folder, which TestMain removes.
var programs = sync.OnceValues(func() (dir string, err error) {
	root, err := build.Root(".")
	if err != nil {
		return "", err
	}
	if dir, err = os.MkdirTemp("", "ak"); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", dir, "./cmd/"+controllerProgram, "./cmd/"+proxyProgram)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if rigs.Load() > 0 {
		dir, _ := programs()
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func (r *rig) kubectl(input string, args ...string) string {
	r.Helper()
	out, err := r.server.Kubectl(r.Context(), input, args...)
	if err != nil {
		r.Fatal(err)
	}
	return out
}

// port is a free one of its address.
func (r *rig) port() int {
	r.Helper()
	l, err := net.Listen("tcp", r.at(0))
	if err != nil {
		r.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// at is a port of its address.
func (r *rig) at(port int) string { return net.JoinHostPort(r.address, strconv.Itoa(port)) }

// serveBackend answers at an address of this machine that is not loopback: the API takes no
// endpoint there.
func (r *rig) serveBackend() {
	r.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		r.Fatal(err)
	}
	for _, a := range addresses {
		ip, _, err := net.ParseCIDR(a.String())
		if err != nil || ip.To4() == nil || !ip.IsGlobalUnicast() {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(ip.String(), "0"))
		if err != nil {
			r.Fatal(err)
		}
		r.backend = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
		_ = r.backend.Listener.Close()
		r.backend.Listener = l
		r.backend.Start()
		r.Cleanup(r.backend.Close)
		return
	}
	r.Fatal("this machine has no IPv4 address but loopback's, where the API takes no endpoint")
}

// start runs a program until the test ends, and shows what it said if that failed.
func (r *rig) start(name string, args ...string) *exec.Cmd {
	r.Helper()
	log := filepath.Join(r.dir, filepath.Base(name)+".log")
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		r.Fatal(err)
	}
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		end(cmd)
		_ = out.Close()
		if r.Failed() {
			text, _ := os.ReadFile(log)
			r.Logf("%s said\n%s", name, text[max(0, len(text)-6000):])
		}
	})
	return cmd
}

// end has a program end, if it has not.
func end(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(syscall.SIGTERM)
	force := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	_ = cmd.Wait()
	force.Stop()
}

func (r *rig) startController(args ...string) *exec.Cmd {
	r.Helper()
	return r.start(filepath.Join(r.dir, controllerProgram), append([]string{
		"--kubeconfig=" + r.server.Kubeconfig, "--release-namespace=" + namespace, "--bind=" + r.address,
		"--discovery-bind=" + r.address, "--discovery-port=" + strconv.Itoa(r.stream), "--discovery-bootstrap-port=" + strconv.Itoa(r.boot),
		"--inspect-port=" + strconv.Itoa(r.port()),
	}, args...)...)
}

// startProxy runs a proxy as the pod of that name, which has what a pod has of the
// API: a token and the trust bundle. Of what it kept earlier it has nothing.
func (r *rig) startProxy(pod string) (stop func()) {
	r.Helper()
	var bundle string
	r.eventually("the trust bundle", func(ctx context.Context) bool {
		m, err := r.core.ConfigMaps(namespace).Get(ctx, "coxswain-discovery-trust", metav1.GetOptions{})
		if err != nil {
			return false
		}
		bundle = m.Data["ca.crt"]
		return bundle != ""
	})
	p, err := r.core.Pods(namespace).Get(r.Context(), pod, metav1.GetOptions{})
	if err != nil {
		r.Fatal(err)
	}
	token, err := r.core.ServiceAccounts(namespace).CreateToken(r.Context(), account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{"coxswain-discovery"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod, UID: p.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(r.dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			r.Fatal(err)
		}
		return path
	}
	bootstrap := filepath.Join(r.dir, "bootstrap.json")
	for _, path := range []string{bootstrap, filepath.Join(r.dir, "last-good")} {
		if err := os.RemoveAll(path); err != nil {
			r.Fatal(err)
		}
	}
	proxy := r.start(filepath.Join(r.dir, proxyProgram),
		"--discovery-endpoint=https://"+r.at(r.stream), "--discovery-bootstrap-endpoint=https://"+r.at(r.boot),
		"--discovery-sa-token-path="+file("token", token.Status.Token), "--discovery-ca-bundle-path="+file("ca.crt", bundle),
		"--discovery-server-id=spiffe://cluster.local/ns/"+namespace+"/sa/aether-controller", "--proxy-id="+pod, "--scope=shared",
		"--xds-socket="+filepath.Join(r.dir, "xds.sock"), "--envoy-admin-socket="+filepath.Join(r.dir, "admin.sock"),
		"--envoy-bootstrap="+bootstrap, "--last-good-dir="+filepath.Join(r.dir, "last-good"), "--inspect-socket="+filepath.Join(r.dir, "inspect.sock"))
	r.eventually("Envoy's bootstrap", func(context.Context) bool { _, err := os.Stat(bootstrap); return err == nil })
	program := os.Getenv("AETHER_ENVOY")
	if program == "" {
		r.Fatal("AETHER_ENVOY is not set: run make cluster-test")
	}
	envoy := r.start(program, "--config-path", r.amend(bootstrap), "--log-level", "info", "--concurrency", "1", "--disable-hot-restart")
	return func() { end(envoy); end(proxy) }
}

// amend returns a file of the bootstrap as the test wants it.
func (r *rig) amend(bootstrap string) string {
	if r.change == nil {
		return bootstrap
	}
	text, err := os.ReadFile(bootstrap)
	if err != nil {
		r.Fatal(err)
	}
	changed := bootstrap + ".changed.json"
	if err := os.WriteFile(changed, r.change(text), 0o600); err != nil {
		r.Fatal(err)
	}
	return changed
}

func (r *rig) eventually(what string, is func(context.Context) bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is(ctx) {
		select {
		case <-ctx.Done():
			r.Fatalf("%s: not after %s\n%s", what, patience, r.state())
		case <-tick.C:
		}
	}
}

func (r *rig) state() string {
	out, err := r.server.Kubectl(context.WithoutCancel(r.Context()), "", "get", "gateways,httproutes,services,configmaps", "-A", "-o", "yaml")
	return fmt.Sprintf("%v\n%s", err, out[max(0, len(out)-8000):])
}

// get is the status code of a request, 0 if there is no answer.
func (r *rig) get(ctx context.Context, port int, host string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+r.at(port)+"/", http.NoBody)
	if err != nil {
		return 0
	}
	req.Host = host
	resp, err := r.client.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

func (r *rig) jsonpath(kind, ns, name, path string) string {
	out, err := r.server.Kubectl(r.Context(), "", "get", kind, "-n", ns, name, "-o", "jsonpath="+path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

const objects = `
apiVersion: v1
kind: Namespace
metadata: {name: aether-system}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: coxswain-shared-proxy, namespace: aether-system}
---
apiVersion: v1
kind: Pod
metadata: {name: proxy-1, namespace: aether-system}
spec: {serviceAccountName: coxswain-shared-proxy, automountServiceAccountToken: false, containers: [{name: c, image: i}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec: {gatewayClassName: coxswain, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other, namespace: default}
spec: {gatewayClassName: coxswain, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: default}
spec: {ports: [{port: 80}]}
`

func slice(backend string) string {
	ip, port, _ := net.SplitHostPort(backend)
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, namespace: default, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{port: %s}]
endpoints: [{addresses: [%s]}]
`, port, ip)
}

func route(name, host string) string {
	return fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: default}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s]
  rules: [{backendRefs: [{name: shop, port: 80}]}]
`, name, host)
}

func TestWhatIsWrittenToTheAPIIsServedAndToldThere(t *testing.T) {
	r := newRig(t)
	r.kubectl(objects+"---"+slice(r.backend.Listener.Addr().String())+"---"+route("shop", host), "create", "-f", "-")
	r.startController()
	r.startProxy("proxy-1")

	// Each Gateway gets a Service, and the two do not share a port.
	internal := map[string]int{}
	for i, gw := range []string{"web", "other"} {
		service := "default-" + gw + "-coxswain"
		r.eventually("Service "+service, func(context.Context) bool {
			internal[gw], _ = strconv.Atoi(r.jsonpath("service", namespace, service, "{.spec.ports[0].targetPort}"))
			return internal[gw] > 0
		})
		if reason := r.jsonpath("gateway", "default", gw, `{.status.conditions[?(@.type=="Programmed")].reason}`); reason != "" && reason != "AddressNotAssigned" {
			t.Errorf("before it has an address Gateway %s is Programmed for reason %q", gw, reason)
		}
		r.kubectl("", "patch", "service", "-n", namespace, service, "--subresource=status", "--type=merge", "-p",
			fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.%d"}]}}}`, 101+i))
	}
	if internal["web"] == internal["other"] {
		t.Fatalf("both Gateways have port %d", internal["web"])
	}
	for i, gw := range []string{"web", "other"} {
		r.eventually("Gateway "+gw+" is programmed", func(context.Context) bool {
			return r.jsonpath("gateway", "default", gw, `{.status.conditions[?(@.type=="Programmed")].status}`) == "True" &&
				r.jsonpath("gateway", "default", gw, "{.status.addresses[*].value}") == fmt.Sprintf("192.0.2.%d", 101+i)
		})
	}
	r.eventually("the route answers", func(ctx context.Context) bool { return r.get(ctx, internal["web"], host) == http.StatusOK })
	if code := r.get(t.Context(), internal["other"], host); code != http.StatusNotFound {
		t.Errorf("the other Gateway answers %d", code)
	}
	r.eventually("the route's status", func(context.Context) bool {
		return r.jsonpath("httproute", "default", "shop", `{.status.parents[0].conditions[?(@.type=="Accepted")].status}`) == "True" &&
			r.jsonpath("gateway", "default", "web", "{.status.listeners[0].attachedRoutes}") == "1"
	})
	if got := r.jsonpath("gatewayclass", "", "coxswain", `{.status.conditions[?(@.type=="Accepted")].status}`); got != "True" {
		t.Errorf("the GatewayClass is Accepted=%q", got)
	}

	// The API server goes away and comes back under constant traffic: no request is lost,
	// and what is written after is served.
	var traffic sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	codes := map[int]int{}
	traffic.Go(func() {
		for ctx.Err() == nil {
			if code := r.get(context.WithoutCancel(ctx), internal["web"], host); code != 0 || ctx.Err() == nil {
				codes[code]++
			}
		}
	})
	if err := r.server.Stop(apiserver.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := r.server.StartAll(); err != nil {
		t.Fatal(err)
	}
	if err := r.server.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.kubectl(route("blog", "blog.example.com"), "create", "-f", "-")
	r.eventually("a route that was written after", func(ctx context.Context) bool {
		return r.get(ctx, internal["web"], "blog.example.com") == http.StatusOK
	})
	stop()
	traffic.Wait()
	if len(codes) != 1 || codes[http.StatusOK] == 0 {
		t.Errorf("answers meanwhile, by status: %v", codes)
	}

	// What is deleted goes with all that was made for it.
	r.kubectl("", "delete", "gateway", "-n", "default", "web")
	r.eventually("the Service's end", func(context.Context) bool {
		return r.jsonpath("service", namespace, "default-web-coxswain", "{.metadata.name}") == ""
	})
}
