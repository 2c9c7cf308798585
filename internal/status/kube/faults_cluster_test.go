//go:build cluster

package kube_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
	"aether.io/aether/internal/status/kube"
)

// nobody is a fleet without proxies: what is written here needs none.
type nobody struct{}

func (nobody) Verdict(scope.Scope, []resource.Name, uint32) fleet.Verdict { return fleet.Verdict{} }

func (nobody) Position(scope.Scope) uint64 { return 0 }

func (nobody) Roll(scope.Scope, []resource.Name, uint64) []fleet.Member { return nil }

// faulty is a way to the API server on which requests fail.
func faulty(t *testing.T, config *rest.Config, fault func(http.ResponseWriter, *http.Request) bool) *rest.Config {
	t.Helper()
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fault(w, r) {
			forward.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, QPS: -1}
}

// The API server asks for fewer requests, fails, and does not answer about one object: what
// can be written is, and the rest when it can be.
func TestStatusesAreWrittenByAnAPIServerInTrouble(t *testing.T) {
	r := newRig(t)
	const routes = 60
	var list strings.Builder
	for i := range routes {
		fmt.Fprintf(&list, "---\n%s", strings.Replace(route, "shop", fmt.Sprintf("r%d", i), 1))
	}
	if _, err := r.server.Kubectl(t.Context(), list.String(), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	var requests, refused, failed atomic.Int64
	release := make(chan struct{})
	config := faulty(t, r.server.Config, func(w http.ResponseWriter, req *http.Request) bool {
		if req.Method != http.MethodPut {
			return false
		}
		if strings.HasSuffix(req.URL.Path, "/r0/status") {
			select {
			case <-release:
			case <-req.Context().Done():
				return true
			}
		}
		switch n := requests.Add(1); {
		case n%7 == 1:
			refused.Add(1)
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		case n%5 == 1:
			failed.Add(1)
			http.Error(w, "etcdserver: request timed out", http.StatusInternalServerError)
		default:
			return false
		}
		return true
	})
	sink, err := kube.New(kube.Config{Client: config, ControllerName: ours, FieldManager: manager})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := status.New(status.Config{Observer: nobody{}, Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- engine.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	var all []routing.Status
	for i := range routes {
		k := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: fmt.Sprintf("r%d", i)}
		all = append(all, routing.Status{Key: k, Generation: 1, Value: document("good").Status})
	}
	engine.Update(all)
	written := func() int {
		var now gatewayv1.HTTPRouteList
		if err := r.client.Get().Namespace("default").Resource("httproutes").Do(t.Context()).Into(&now); err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range now.Items {
			if len(now.Items[i].Status.Parents) == 1 && now.Items[i].Status.Parents[0].Conditions[0].Message == "good" {
				n++
			}
		}
		return n
	}
	wait := func(want int) {
		t.Helper()
		deadline := time.After(2 * time.Minute)
		for written() != want {
			select {
			case <-deadline:
				t.Fatalf("%d statuses are written, want %d; %d requests, %d refused, %d failed", written(), want, requests.Load(), refused.Load(), failed.Load())
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	wait(routes - 1)
	if engine.Settled() {
		t.Error("settled, though one is not written")
	}
	close(release)
	wait(routes)
	if refused.Load() == 0 || failed.Load() == 0 {
		t.Errorf("%d requests were refused and %d failed: nothing was tried", refused.Load(), failed.Load())
	}
}
