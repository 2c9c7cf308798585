package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/test/instance"
	"aether.io/aether/internal/xds"
)

const table = "bench/web/8080"

// floor gives the same routes straight to a local xDS server, with nothing before it.
func floor(ctx context.Context, envoyPath string, backend, n, edits int) (sample, error) {
	work, err := os.MkdirTemp("", "aether-floor-")
	if err != nil {
		return sample{}, err
	}
	defer os.RemoveAll(work)
	port, err := instance.FreeOffset(0)
	if err != nil {
		return sample{}, err
	}
	all, err := world(port, backend, n, false)
	if err != nil {
		return sample{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server, stop, err := startEnvoy(ctx, work, envoyPath)
	if err != nil {
		return sample{}, err
	}
	defer stop()
	var set resource.Set
	for _, r := range all {
		set.Add(r.Name, r.Hash)
	}
	if _, err := server.Apply(ctx, resource.Update{Version: set.Version(), Full: true, Changed: all}); err != nil {
		return sample{}, err
	}
	applied := make(chan error, 1)
	applied <- nil
	return measure(ctx, port, n, edits, func(i int) (time.Time, error) {
		r, err := scopeOf(i).Resource()
		if err := errors.Join(err, <-applied); err != nil {
			return time.Time{}, err
		}
		set.Add(r.Name, r.Hash)
		at := time.Now()
		go func() { // the first 200 may come before the answer
			_, err := server.Apply(ctx, resource.Update{Version: set.Version(), Changed: []*resource.Resource{r}})
			applied <- err
		}()
		return at, nil
	})
}

// startEnvoy runs a local xDS server and an Envoy fed by it.
func startEnvoy(ctx context.Context, work, path string) (*xds.Server, func(), error) {
	socket, admin, file := filepath.Join(work, "xds.sock"), filepath.Join(work, "admin.sock"), filepath.Join(work, "bootstrap.json")
	server, err := xds.New(xds.Config{Socket: socket, AdminSocket: admin})
	if err != nil {
		return nil, nil, err
	}
	text, err := bootstrap.New(bootstrap.Config{NodeID: "bench", Cluster: "bench", XDSSocket: socket, AdminSocket: admin})
	if err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx) }()
	cmd := exec.Command(path, "--config-path", file, "--log-level", "warn", "--concurrency", "2", "--disable-hot-restart")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, nil, err
	}
	return server, func() { _ = cmd.Process.Kill(); _ = cmd.Wait(); cancel(); <-served }, nil
}

// world is a listener, which exports to a collector or not, the clusters with their endpoints, and n scopes.
func world(port, backend, n int, collector bool) ([]*resource.Resource, error) {
	models := []interface {
		Resource() (*resource.Resource, error)
	}{
		envoy.Listener{Name: table, Address: "127.0.0.1", Port: uint32(port), Chains: []envoy.Chain{{Name: table, PerHost: true, Collector: collector}}},
		envoy.Scope{Table: table, Host: "*", PerHost: true},
	}
	for i := range services {
		name := cluster(i)
		models = append(models, envoy.Cluster{Name: name, ConnectTimeout: time.Second},
			envoy.Endpoints{Cluster: name, Addresses: []envoy.Address{{IP: "127.0.0.1", Port: uint32(backend)}}})
	}
	for i := range n {
		models = append(models, scopeOf(i))
	}
	var out []*resource.Resource
	for _, m := range models {
		r, err := m.Resource()
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *resource.Resource) int { return a.Compare(b.Name) })
	return out, nil
}

func cluster(i int) string { return fmt.Sprintf("bench/s%d/80", i%services) }

func scopeOf(i int) envoy.Scope {
	return envoy.Scope{Table: table, Host: host(i), PerHost: true, VirtualHosts: []envoy.VirtualHost{{
		Host: host(i), Routes: []envoy.Route{{Name: fmt.Sprintf("bench/r%d/0/0", i), Backends: []envoy.WeightedBackend{{Cluster: cluster(i), Weight: 1}}}},
	}}}
}
