package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/identity"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/spiffeid"
)

// simulated is what is behind a proxy that has no Envoy: it takes what comes.
type simulated struct {
	seen func(resource.Update) // called with each update

	mu    sync.Mutex // guards what follows
	held  resource.Held
	names map[resource.Name]*resource.Resource
}

// Apply implements client.Applier.
func (s *simulated) Apply(_ context.Context, u resource.Update) (resource.Outcome, error) {
	s.mu.Lock()
	if u.Full {
		clear(s.names)
	}
	for _, r := range u.Changed {
		s.names[r.Name] = r
	}
	for _, n := range u.Removed {
		delete(s.names, n)
	}
	s.held = resource.Held{Version: u.Version, Mark: u.Mark}
	s.mu.Unlock()
	s.seen(u)
	return resource.Outcome{}, nil
}

// Held implements client.Applier.
func (s *simulated) Held() resource.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.held
	out.Resources = slices.SortedFunc(maps.Values(s.names), func(a, b *resource.Resource) int { return a.Compare(b.Name) })
	return out
}

// Observe implements client.Applier.
func (s *simulated) Observe() <-chan struct{} { return nil }

// Observed implements client.Applier.
func (s *simulated) Observed() resource.Observed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return resource.Observed{Version: s.held.Version, EnvoyConnected: true, EnvoyVersion: "simulated", Configured: s.held.Version != ""}
}

// Simulate connects n proxies without Envoys, each with an identity of its own, until the
// rig is closed, and returns when each has been sent something. seen is called with what
// proxy i is sent, by a goroutine of that proxy.
func (r *Rig) Simulate(ctx context.Context, n int, seen func(i int, u resource.Update)) error {
	dir := filepath.Join(r.c.Dir, "simulated")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	var proxies sync.WaitGroup
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r.stop = append(r.stop, func() { cancel(); proxies.Wait() })
	var started sync.WaitGroup
	var mu sync.Mutex // guards failed
	var failed error
	for i := range n {
		name := fmt.Sprintf("simulated-%d", i)
		token, err := r.token(ctx, name, true)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			return err
		}
		started.Add(1)
		first := sync.OnceFunc(started.Done)
		runs, err := r.proxyOf(name, file, &simulated{names: map[resource.Name]*resource.Resource{}, seen: func(u resource.Update) {
			seen(i, u)
			first()
		}})
		if err != nil {
			return err
		}
		for _, run := range runs {
			proxies.Go(func() {
				if err := run(live); err != nil && live.Err() == nil {
					mu.Lock()
					failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
					mu.Unlock()
				}
			})
		}
	}
	all := make(chan struct{})
	go func() { started.Wait(); close(all) }() // ends with the process if they never come
	return await(ctx, "simulated proxies", func(context.Context) bool {
		select {
		case <-all:
			return true
		default:
			mu.Lock()
			defer mu.Unlock()
			return failed != nil
		}
	})
}

// proxyOf is what runs a proxy of the shared pool.
func (r *Rig) proxyOf(name, token string, applier client.Applier) ([]func(context.Context) error, error) {
	domain, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		return nil, err
	}
	server, err := spiffeid.Controller(domain, release)
	if err != nil {
		return nil, err
	}
	id, err := identity.New(identity.Config{
		Endpoint: "https://127.0.0.1:" + r.boot, TokenPath: token, BundlePath: filepath.Join(r.c.Dir, "ca.crt"), TrustDomain: domain, ServerID: server,
	})
	if err != nil {
		return nil, err
	}
	stream, err := client.New(client.Config{Endpoint: "https://127.0.0.1:" + r.stream, Identity: id, Applier: applier, Scope: scope.SharedPool(), NodeID: name})
	if err != nil {
		return nil, err
	}
	return []func(context.Context) error{id.Run, stream.Run}, nil
}

// token is that of a pod of the shared pool, which is made first if asked for.
func (r *Rig) token(ctx context.Context, name string, create bool) (string, error) {
	pods := r.API.Core.Pods(release)
	if create {
		if _, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				ServiceAccountName: account, AutomountServiceAccountToken: ptr.To(false),
				Containers: []corev1.Container{{Name: "c", Image: "i"}},
			},
		}, metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	p, err := pods.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	t, err := r.API.Core.ServiceAccounts(release).CreateToken(ctx, account, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences:      []string{"coxswain-discovery"},
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: p.UID},
	}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return t.Status.Token, nil
}
