//go:build component

// Package standalone_test runs the product as a person would, and looks at it from outside.
package standalone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/test/instance"
)

const (
	port     = 8080
	patience = 30 * time.Second
)

var (
	binaries string // directory of the built commands
	envoy    string
)

func TestMain(m *testing.M) {
	envoy = os.Getenv("AETHER_ENVOY")
	os.Exit(instance.WithPrograms(envoy, func(programs string) int {
		binaries = programs
		return m.Run()
	}))
}

// world is one instance with its backends, and a client.
type world struct {
	*instance.Instance
	t      *testing.T
	client *http.Client
}

// start runs an instance on manifests, given as file name to text; PORT(a) in them is
// the port of a backend that answers "a".
func start(t *testing.T, files map[string]string, args ...string) *world {
	t.Helper()
	work := t.TempDir()
	return startIn(t, filepath.Join(work, "manifests"), filepath.Join(work, "state"), files, args...)
}

func startIn(t *testing.T, dir, state string, files map[string]string, args ...string) *world {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	offset, err := instance.FreeOffset(port, port+1)
	if err != nil {
		t.Fatal(err)
	}
	in, err := instance.Start(t.Context(), instance.Config{
		Aetherctl: filepath.Join(binaries, "aetherctl"), Envoy: envoy, Dir: dir, StateDir: state, Offset: offset, Args: args,
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Instance: in, t: t, client: &http.Client{Timeout: 5 * time.Second}}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		if t.Failed() {
			t.Log(in.Dump())
		}
		if err := in.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return w
}

// backend starts a server that answers with its name, and returns its Service.
func backend(t *testing.T, name string) string {
	t.Helper()
	b, err := instance.StartBackend(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, b.Port)
}

const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  listeners: [{name: http, protocol: HTTP, port: 8080}]
`

func route(name, backend string) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: web}]
  hostnames: [%[1]s.example.com]
  rules: [{backendRefs: [{name: %[2]s, port: 80}]}]
`, name, backend)
}

func (w *world) get(host string) (int, string) {
	return w.Get(w.t.Context(), w.client, port, host, "/")
}

// eventually waits until ok, and fails with what it last said.
func (w *world) eventually(what string, ok func() (bool, string)) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		done, seen := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("gave up waiting until %s; last seen: %s", what, seen)
		}
		<-tick.C
	}
}

func (w *world) answers(host string, code int, body string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s answers %d %q", host, code, body), func() (bool, string) {
		c, b := w.get(host)
		return c == code && (body == "" || b == body), fmt.Sprintf("%d %q", c, b)
	})
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if _, err := w.Write(name, text); err != nil {
		w.t.Fatal(err)
	}
}

// aetherctl runs the command against the instance.
func (w *world) aetherctl(args ...string) string {
	w.t.Helper()
	out, err := exec.Command(filepath.Join(binaries, "aetherctl"), append(args, "--state-dir", w.State.Root())...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("aetherctl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// condition is a condition's status in a status file, with its reason and message.
func (w *world) condition(path, kind string) string {
	text, err := os.ReadFile(filepath.Join(w.State.Status(), path))
	if err != nil {
		return err.Error()
	}
	type condition struct{ Type, Status, Reason, Message string }
	var doc struct {
		Status struct {
			Conditions []condition
			Parents    []struct{ Conditions []condition }
		}
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return err.Error()
	}
	all := doc.Status.Conditions
	for _, p := range doc.Status.Parents {
		all = append(all, p.Conditions...)
	}
	for _, c := range all {
		if c.Type == kind {
			return c.Status + " " + c.Reason + ": " + c.Message
		}
	}
	return "no condition " + kind
}

func (w *world) conditionBecomes(path, kind, want string) {
	w.t.Helper()
	w.eventually(path+" has "+kind+" "+want, func() (bool, string) {
		got := w.condition(path, kind)
		return strings.HasPrefix(got, want), got
	})
}

func TestManifestsBecomeTrafficAndStatus(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "b.yaml": backend(t, "b"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	if code, _ := w.get("other.example.com"); code != http.StatusNotFound {
		t.Errorf("an unknown host answered %d, want 404", code)
	}
	w.conditionBecomes("gateway/default/web.yaml", "Programmed", "True")
	w.conditionBecomes("httproute/default/one.yaml", "Accepted", "True")
	w.conditionBecomes("httproute/default/one.yaml", "config.aether.io/Programmed", "True")

	w.write("route.yaml", route("one", "b"))
	w.answers("one.example.com", http.StatusOK, "b")
	w.write("route.yaml", route("two", "a")) // another object in the same file: the first is gone
	w.answers("two.example.com", http.StatusOK, "a")
	w.answers("one.example.com", http.StatusNotFound, "")
	if err := os.Remove(filepath.Join(w.Dir, "route.yaml")); err != nil {
		t.Fatal(err)
	}
	w.answers("two.example.com", http.StatusNotFound, "")
	w.eventually("the status of the deleted route is gone", func() (bool, string) {
		_, err := os.Stat(filepath.Join(w.State.Status(), "httproute/default/two.yaml"))
		return os.IsNotExist(err), fmt.Sprint(err)
	})
}

func TestABrokenManifestKeepsWhatItHadAndIsShown(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	for name, text := range map[string]string{
		"no YAML":            "kind: [",
		"an invalid object":  strings.Replace(route("one", "a"), "hostnames: [one.example.com]", "hostnames: ['not a host']", 1),
		"an unknown version": strings.Replace(route("one", "a"), "networking.k8s.io/v1", "networking.k8s.io/v9", 1),
	} {
		w.write("route.yaml", text)
		w.eventually("the problem is shown: "+name, func() (bool, string) {
			out := w.aetherctl("status")
			return strings.Contains(out, "route.yaml"), out
		})
		if code, _ := w.get("one.example.com"); code != http.StatusOK {
			t.Errorf("%s: the route answers %d, want its last good version's 200", name, code)
		}
		w.write("route.yaml", route("one", "a"))
		w.eventually("the problem is gone: "+name, func() (bool, string) {
			out := w.aetherctl("status")
			return !strings.Contains(out, "route.yaml"), out
		})
	}
}

// load asks for host until stop is called, which returns how often each code was seen.
func (w *world) load(host string) (stop func() map[int]int) {
	ctx, cancel := context.WithCancel(w.t.Context())
	codes := map[int]int{}
	var done sync.WaitGroup
	done.Go(func() {
		client := &http.Client{Timeout: 5 * time.Second}
		defer client.CloseIdleConnections()
		for ctx.Err() == nil {
			code, _ := w.Get(w.t.Context(), client, port, host, "/")
			codes[code]++
		}
	})
	return func() map[int]int { cancel(); done.Wait(); return codes }
}

func (w *world) killAndAwaitSuccessor(name string) {
	w.t.Helper()
	old, err := w.Signal(name, syscall.SIGKILL)
	if err != nil {
		w.t.Fatal(err)
	}
	w.eventually(name+" has a successor", func() (bool, string) {
		pid, err := w.PID(name)
		return err == nil && pid != old, fmt.Sprint(pid, err)
	})
}

func TestKillingControllerOrProxyLosesNoRequestAndANewRouteWorksAfter(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	stop := w.load("one.example.com")
	for i, name := range []string{"controller", "proxy", "controller", "proxy"} {
		w.killAndAwaitSuccessor(name)
		added := fmt.Sprintf("new%d", i)
		w.write(added+".yaml", route(added, "a"))
		w.answers(added+".example.com", http.StatusOK, "a")
	}
	codes := stop()
	if len(codes) != 1 || codes[http.StatusOK] == 0 {
		t.Fatalf("requests were lost: %v", codes)
	}
}

func TestAKilledEnvoyIsConfiguredAgain(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.killAndAwaitSuccessor("envoy")
	w.answers("one.example.com", http.StatusOK, "a")
	w.write("two.yaml", route("two", "a"))
	w.answers("two.example.com", http.StatusOK, "a")
}

func TestNothingIsLeftBehind(t *testing.T) {
	cases := map[string]func(*world) error{
		"after SIGTERM":                   func(w *world) error { return w.Stop() },
		"after SIGKILL of the supervisor": func(w *world) error { return w.Kill() },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			w := start(t, map[string]string{"gateway.yaml": gateway})
			var pids []int
			for _, p := range []string{"controller", "proxy", "envoy"} {
				pid, err := w.PID(p)
				if err != nil || !instance.Alive(pid) {
					t.Fatalf("%s does not run (pid %d, %v)", p, pid, err)
				}
				pids = append(pids, pid)
			}
			if err := end(w); err != nil {
				t.Fatal(err)
			}
			for _, pid := range pids {
				w.eventually("process is gone", func() (bool, string) { return !instance.Alive(pid), fmt.Sprint(pid) })
			}
			// What was killed can be started again on what it left.
			again := startIn(t, w.Dir, w.State.Root(), nil)
			again.conditionBecomes("gateway/default/web.yaml", "Programmed", "True")
		})
	}
}

func TestTwoInstancesDoNotDisturbEachOther(t *testing.T) {
	one := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	two := start(t, map[string]string{"gateway.yaml": gateway, "b.yaml": backend(t, "b"), "route.yaml": route("one", "b")})
	one.answers("one.example.com", http.StatusOK, "a")
	two.answers("one.example.com", http.StatusOK, "b")
	if err := two.Stop(); err != nil {
		t.Fatal(err)
	}
	one.answers("one.example.com", http.StatusOK, "a")
}

func TestOneStateDirectoryHasOneInstance(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway})
	out, err := exec.Command(filepath.Join(binaries, "aetherctl"), "standalone", w.Dir, "--state-dir", w.State.Root(), "--envoy", envoy).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("another instance runs on this state directory")) {
		t.Fatalf("got %v\n%s", err, out)
	}
}

func TestAccessLogsFollowTheMeshConfigLive(t *testing.T) {
	mesh := func(enabled string) string {
		return "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: aether-system}\nspec: {proxy: {accessLogsEnabled: " + enabled + "}}\n"
	}
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a"), "mesh.yaml": mesh("false")})
	w.answers("one.example.com", http.StatusOK, "a")
	w.write("mesh.yaml", mesh("true"))
	w.eventually("a request is logged as JSON", func() (bool, string) {
		w.get("one.example.com")
		text, err := os.ReadFile(w.State.Log("access"))
		line, _, found := bytes.Cut(text, []byte("\n"))
		return err == nil && found && json.Valid(line) && bytes.Contains(line, []byte("one.example.com")), string(text)
	})
	w.conditionBecomes("meshconfig/aether-system/default.yaml", "Applied", "True")
}

func TestACommandTellsWhatRuns(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway, "a.yaml": backend(t, "a"), "route.yaml": route("one", "a")})
	w.answers("one.example.com", http.StatusOK, "a")
	for args, want := range map[string][]string{
		"status":                       {"Gateway/default/web", "HTTPRoute/default/one", "GatewayClass/coxswain"},
		"status httproute default/one": {"kind: HTTPRoute", "config.aether.io/Programmed"},
		"get processes":                {"controller", "proxy", "envoy", "true"},
		"get proxies":                  {"standalone-proxy", "SharedPool", "1.40.0"},
		"get resources":                {"default/web/8080", "default/a/80", "HTTPRoute/default/one"},
		"get identity":                 {"cluster.local", "spiffe://cluster.local/ns/aether-system/sa/coxswain-shared-proxy", "issued"},
	} {
		for _, s := range want {
			w.eventually(fmt.Sprintf("aetherctl %s says %q", args, s), func() (bool, string) {
				out := w.aetherctl(strings.Fields(args)...)
				return strings.Contains(out, s), out
			})
		}
		var v any
		if err := json.Unmarshal([]byte(w.aetherctl(append(strings.Fields(args), "-o", "json")...)), &v); err != nil {
			t.Errorf("aetherctl %s -o json: %v", args, err)
		}
	}
}

func TestSecretsStayWhereTheyBelong(t *testing.T) {
	w := start(t, map[string]string{"gateway.yaml": gateway})
	token, err := os.ReadFile(w.State.Token())
	if err != nil {
		t.Fatal(err)
	}
	allowed := map[string]bool{w.State.Token(): true, w.State.Tokens(): true}
	err = filepath.WalkDir(w.State.Root(), func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !allowed[path] && bytes.Contains(text, bytes.TrimSpace(token)) {
			t.Errorf("%s holds the token", path)
		}
		if bytes.Contains(text, []byte("PRIVATE KEY")) && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s holds a key and has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if out := w.Output(); strings.Contains(out, strings.TrimSpace(string(token))) {
		t.Error("the output holds the token")
	}
}
