// Command bench measures how long a new route takes from its file being renamed into
// place to the first 200 on its new host, at several numbers of routes, beside the floor:
// the same update given straight to the local xDS server. Then it measures the same, and what
// many routes cost, on Kubernetes. It reports; it judges nothing but that no status other
// than 404 before and 200 after was seen.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"aether.io/aether/internal/test/instance"
)

const (
	listenerPort = 8080
	services     = 10 // all are used from the start at every size: a new route is nothing but that
	patience     = 20 * time.Second
)

func main() {
	aetherctl := flag.String("aetherctl", "bin/aetherctl", "path of the command; the other programs are beside it")
	envoy := flag.String("envoy", os.Getenv("AETHER_ENVOY"), "path of Envoy")
	edits := flag.Int("edits", 40, "routes added at each size")
	what := flag.String("only", "standalone,collector,routes,burst,rest,meshconfig", "what to measure: standalone, requests while a collector is up, down or hung, and on Kubernetes a new route, many at once, many at rest, and edits of a MeshConfig (never on a cluster: its proxies are simulated)")
	cluster := flag.String("cluster", "", "folder of the test cluster to measure on, with Aether on it; empty: an API server of its own, with processes of this machine")
	writers := flag.Int("writers", 4, "edits of a MeshConfig that are under way at a time in a storm")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	for one := range strings.SplitSeq(*what, ",") {
		switch one {
		case "standalone":
			err = run(ctx, *aetherctl, *envoy, *edits)
		case "collector":
			err = withCollectors(ctx, *envoy)
		default:
			err = onKubernetes(ctx, one, *cluster, filepath.Dir(*aetherctl), *envoy, *edits, *writers)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", one, err)
			os.Exit(1) //nolint:gocritic // nothing is deferred but the signals
		}
	}
}

// run measures every size, whole path and floor in turn, and prints a table.
func run(ctx context.Context, aetherctl, envoy string, edits int) error {
	backend, err := instance.StartBackend("ok", 0)
	if err != nil {
		return err
	}
	defer backend.Close()
	fmt.Println("new route to first 200        mean       p50       max   growth  codes")
	first := map[string]time.Duration{}
	for _, n := range []int{10, 1000, 3000} {
		for _, what := range []struct {
			name    string
			measure func(context.Context, int) (sample, error)
		}{
			{"whole path", func(ctx context.Context, n int) (sample, error) {
				return wholePath(ctx, aetherctl, envoy, backend.Port, n, edits)
			}},
			{"floor", func(ctx context.Context, n int) (sample, error) { return floor(ctx, envoy, backend.Port, n, edits) }},
		} {
			s, err := what.measure(ctx, n)
			if err != nil {
				return fmt.Errorf("%s at %d routes: %w", what.name, n, err)
			}
			if first[what.name] == 0 {
				first[what.name] = s.mean()
			}
			fmt.Printf("%-12s %6d routes  %8s  %8s  %8s  %7.2f  %v\n", what.name, n, round(s.mean()), round(s.quantile(0.5)), round(s.quantile(1)),
				float64(s.mean())/float64(first[what.name]), s.codes)
			if err := s.clean(); err != nil {
				return fmt.Errorf("%s at %d routes: %w", what.name, n, err)
			}
		}
	}
	return nil
}

// sample is what one size gave.
type sample struct {
	took  []time.Duration // sorted
	codes map[int]int
}

func (s sample) mean() time.Duration {
	var sum time.Duration
	for _, d := range s.took {
		sum += d
	}
	return sum / time.Duration(max(1, len(s.took)))
}

func (s sample) quantile(q float64) time.Duration { return s.took[int(q*float64(len(s.took)-1))] }

func (s sample) clean() error {
	for code := range s.codes {
		if code != http.StatusOK && code != http.StatusNotFound {
			return fmt.Errorf("status codes other than 404 and 200 were seen: %v", s.codes)
		}
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

func host(i int) string { return fmt.Sprintf("r%d.example.com", i) }

// await asks for host until it answers 200, and returns how long that took since at.
func await(ctx context.Context, c *http.Client, port int, host string, at time.Time, codes map[int]int) (time.Duration, error) {
	for {
		code := get(ctx, c, port, host)
		took := time.Since(at)
		codes[code]++
		if code == http.StatusOK {
			return took, nil
		}
		if took > patience {
			return 0, fmt.Errorf("%s does not answer 200: %v", host, codes)
		}
		time.Sleep(200 * time.Microsecond) // what asks must not take the processor from what is asked
	}
}

// get returns the status code, 0 if there was no answer.
func get(ctx context.Context, c *http.Client, port int, host string) int {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/", port), http.NoBody)
	if err != nil {
		return 0
	}
	req.Host = host
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// measure adds routes one at a time and times each.
func measure(ctx context.Context, port, n, edits int, add func(i int) (time.Time, error)) (sample, error) {
	c := &http.Client{Timeout: 5 * time.Second}
	defer c.CloseIdleConnections()
	// The last of the first n must be there, whatever was seen until then.
	if _, err := await(ctx, c, port, host(n-1), time.Now(), map[int]int{}); err != nil {
		return sample{}, err
	}
	s := sample{codes: map[int]int{}}
	for i := n; i < n+edits; i++ {
		time.Sleep(20 * time.Millisecond) // a system at rest, as it mostly is
		at, err := add(i)
		if err != nil {
			return s, err
		}
		took, err := await(ctx, c, port, host(i), at, s.codes)
		if err != nil {
			return s, err
		}
		s.took = append(s.took, took)
	}
	slices.Sort(s.took)
	return s, nil
}

func wholePath(ctx context.Context, aetherctl, envoy string, backend, n, edits int) (sample, error) {
	work, err := os.MkdirTemp("", "aether-bench-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(work)
	dir := filepath.Join(work, "manifests")
	if err := manifests(dir, backend, n); err != nil {
		return sample{}, err
	}
	offset, err := instance.FreeOffset(listenerPort)
	if err != nil {
		return sample{}, err
	}
	in, err := instance.Start(ctx, instance.Config{Aetherctl: aetherctl, Envoy: envoy, Dir: dir, StateDir: filepath.Join(work, "state"), Offset: offset})
	if err != nil {
		return sample{}, err
	}
	if err := settle(ctx, filepath.Join(work, "state", "status", "httproute", "default"), n); err != nil {
		return sample{}, errors.Join(fmt.Errorf("%w\n%s", err, in.Dump()), in.Stop())
	}
	s, err := measure(ctx, listenerPort+offset, n, edits, func(i int) (time.Time, error) {
		return in.Write(fmt.Sprintf("route-%d.yaml", i), route(i))
	})
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, in.Dump())
	}
	return s, errors.Join(err, in.Stop())
}

// settle returns when the statuses of n routes are written: after its start an instance is
// not at rest before, and what is measured is an edit, not a start.
func settle(ctx context.Context, dir string, n int) error {
	deadline := time.Now().Add(patience)
	for {
		written, _ := os.ReadDir(dir) // that it is not there yet is as good as empty
		if len(written) >= n {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d of %d statuses are written after %s", len(written), n, patience)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// manifests writes a Gateway, the services, and n routes, a file each.
func manifests(dir string, backend, n int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	write := func(name, text string) error { return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600) }
	if err := write("gateway.yaml", gateway); err != nil {
		return err
	}
	var b strings.Builder
	for i := range services {
		fmt.Fprintf(&b, service, i, i, i, backend)
	}
	if err := write("services.yaml", b.String()); err != nil {
		return err
	}
	for i := range n {
		if err := write(fmt.Sprintf("route-%d.yaml", i), route(i)); err != nil {
			return err
		}
	}
	return nil
}

const gateway = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: config.aether.io/v1
kind: GatewayParameters
metadata: {name: bench}
spec: {routeScopes: PerHost}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec:
  gatewayClassName: coxswain
  infrastructure:
    parametersRef: {group: config.aether.io, kind: GatewayParameters, name: bench}
  listeners: [{name: http, protocol: HTTP, port: 8080}]
`

const service = `---
apiVersion: v1
kind: Service
metadata: {name: s%d}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%d, labels: {kubernetes.io/service-name: s%d}}
addressType: IPv4
ports: [{port: %d}]
endpoints: [{addresses: [127.0.0.1]}]
`

func route(i int) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r%d}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: s%d, port: 80}]
`, i, host(i), i%services)
}
