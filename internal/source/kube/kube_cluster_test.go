//go:build cluster

package kube_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/source/kube"
	"aether.io/aether/internal/watermark"
	"aether.io/aether/test/cluster/apiserver"
)

// patience is how long a test waits for what must come. It is long because it may run on a
// busy machine, and because a reflector waits up to 30 s before it tries again.
const patience = 2 * time.Minute

// follower is what a source has handed out so far.
type follower struct {
	t *testing.T

	mu       sync.Mutex // guards what follows
	more     chan struct{}
	objects  map[object.Key]object.Object
	changes  map[object.Key]int
	problems []source.Problem
	synced   bool
	mark     watermark.Mark
}

func follow(t *testing.T, s *kube.Source) *follower {
	t.Helper()
	f := &follower{t: t, more: make(chan struct{}), objects: map[object.Key]object.Object{}, changes: map[object.Key]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, f.take) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return f
}

func (f *follower) take(_ context.Context, b source.Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !b.Synced && len(b.Changes) > 0 {
		f.t.Errorf("a batch with %d changes before everything was listed", len(b.Changes))
	}
	if f.synced && b.Mark.Behind(f.mark) {
		f.t.Errorf("position went back from %v to %v", f.mark, b.Mark)
	}
	for _, c := range b.Changes {
		f.changes[c.Key]++
		if c.Object == nil {
			delete(f.objects, c.Key)
		} else {
			f.objects[c.Key] = c.Object
		}
	}
	f.problems, f.synced, f.mark = b.Problems, b.Synced, b.Mark
	close(f.more)
	f.more = make(chan struct{})
	return nil
}

// wait returns when is holds.
func (f *follower) wait(what string, is func() bool) {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		f.mu.Lock()
		ok, more := is(), f.more
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline:
			f.t.Fatalf("%s did not come; %s", what, f.dump())
		}
	}
}

func (f *follower) dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("objects %v, problems %v", slices.Collect(maps.Keys(f.objects)), f.problems)
}

func (f *follower) has(k object.Key) func() bool { return func() bool { return f.objects[k] != nil } }

func (f *follower) hasNot(k object.Key) func() bool {
	return func() bool { return f.objects[k] == nil }
}

// complains is whether there is a problem about something with this text.
func (f *follower) complains(about, text string) func() bool {
	return func() bool {
		return slices.ContainsFunc(f.problems, func(p source.Problem) bool {
			return strings.Contains(p.Object, about) && strings.Contains(p.Message, text)
		})
	}
}

func (f *follower) content() bool { return len(f.problems) == 0 }

const (
	gateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec: {gatewayClassName: coxswain, listeners: [{name: web, port: 80, protocol: HTTP}]}
`
	route = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: default}
spec: {parentRefs: [{name: web}]}
`
	secrets = `
apiVersion: v1
kind: Secret
metadata: {name: pair, namespace: default}
type: Opaque
stringData: {tls.crt: c, tls.key: k, password: p}
---
apiVersion: v1
kind: Secret
metadata: {name: release, namespace: default}
type: helm.sh/release.v1
stringData: {release: r}
`
	definitions = "customresourcedefinition"
)

func TestARealServerIsFollowedThroughWhatHappensToIt(t *testing.T) {
	r := newRig(t)
	s, err := kube.New(kube.Config{Client: r.Config})
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	web := object.Key{Kind: object.Gateway, Namespace: "default", Name: "web"}
	shop := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "shop"}

	// Without definitions.
	f.wait("a first batch", func() bool { return f.synced })
	f.wait("the namespaces", f.has(object.Key{Kind: object.Namespace, Name: "default"}))
	f.wait("word of what is missing", f.complains("gateways.gateway.networking.k8s.io", "is not installed"))

	// They come later.
	r.define()
	f.wait("an end of complaints", f.content)
	r.kubectl(gateway+"---"+route, "create", "-f", "-")
	f.wait("the Gateway", f.has(web))
	f.wait("the route", f.has(shop))

	// Secrets keep what is read and nothing else.
	r.kubectl(secrets, "create", "-f", "-")
	pair := object.Key{Kind: object.Secret, Namespace: "default", Name: "pair"}
	f.wait("the Secret", f.has(pair))
	f.mu.Lock()
	if data := f.objects[pair].(*corev1.Secret).Data; len(data) != 2 || string(data["tls.key"]) != "k" {
		t.Errorf("the Secret has %v", slices.Collect(maps.Keys(data)))
	}
	if f.objects[object.Key{Kind: object.Secret, Namespace: "default", Name: "release"}] != nil {
		t.Error("a Secret that is none of our business is kept")
	}
	if o := f.objects[web]; len(o.GetManagedFields()) > 0 || o.GetObjectKind().GroupVersionKind().Kind != "Gateway" {
		t.Errorf("the Gateway is %v with %d managed fields", o.GetObjectKind(), len(o.GetManagedFields()))
	}
	before := f.changes[web]
	f.mu.Unlock()

	// A status is no change, a label is.
	r.kubectl("", "patch", "gateway", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"addresses":[{"value":"192.0.2.1"}]}}`)
	r.kubectl("", "label", "gateway", "web", "a=b")
	f.wait("the label", func() bool { return f.objects[web] != nil && f.objects[web].GetLabels()["a"] == "b" })
	f.mu.Lock()
	if n := f.changes[web] - before; n != 1 {
		t.Errorf("%d changes of the Gateway, want 1", n)
	}
	f.mu.Unlock()

	// The server goes away and comes back; what was known stays, what changed comes.
	r.stop(apiserver.APIServer)
	f.wait("word of the outage", f.complains("", "cannot be followed"))
	f.mu.Lock()
	if f.objects[web] == nil {
		t.Error("the Gateway went with the server")
	}
	f.mu.Unlock()
	r.start()
	r.kubectl("", "delete", "gateway", "web")
	f.wait("the deletion", f.hasNot(web))
	f.wait("an end of complaints", f.content)

	// A definition is taken away: its objects stay as they were, and what is true again
	// when it comes back counts.
	r.kubectl("", "delete", definitions, "httproutes.gateway.networking.k8s.io")
	f.wait("word of what was removed", f.complains("httproutes.gateway.networking.k8s.io", "stays in effect"))
	f.mu.Lock()
	if f.objects[shop] == nil {
		t.Error("the route went with its definition")
	}
	f.mu.Unlock()
	r.define()
	f.wait("the route's end", f.hasNot(shop))
	f.wait("an end of complaints", f.content)
}

func TestDefinitionsOfAnotherReleaseAreNamed(t *testing.T) {
	r := newRig(t)
	r.define()
	r.kubectl("", "annotate", definitions, "httproutes.gateway.networking.k8s.io", "--overwrite", "gateway.networking.k8s.io/bundle-version=v1.2.0")
	r.kubectl("", "patch", definitions, "listenersets.gateway.networking.k8s.io", "--type=json", "-p", `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`)
	s, err := kube.New(kube.Config{Client: r.Config})
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	f.wait("a first batch", func() bool { return f.synced })
	f.wait("word of the older release", f.complains("httproutes.gateway.networking.k8s.io", "v1.2.0"))
	f.wait("word of the version that is not served", f.complains("listenersets.gateway.networking.k8s.io", "want v1"))
}
