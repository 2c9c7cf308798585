package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/port"
	"aether.io/aether/internal/readiness"
	"aether.io/aether/internal/run"
)

// alivePath is 200 while the controller's parts answer.
const alivePath = "/healthz"

// ports are where the kubelet and scrapers ask a controller in a pod.
func (c *controller) ports() []run.Part {
	var parts []run.Part
	serve := func(name, address string, pages map[string]http.Handler) {
		if address == "" {
			return
		}
		mux := http.NewServeMux()
		for path, h := range pages {
			mux.Handle("GET "+path, h)
		}
		parts = append(parts, run.Part{Name: name, Run: func(ctx context.Context) error { return port.Serve(ctx, c.log, address, mux) }})
	}
	serve("metrics port", c.f.metricsBind, map[string]http.Handler{inspect.MetricsPath: inspect.Metrics(c.metrics)})
	serve("health port", c.f.healthBind, map[string]http.Handler{
		alivePath:         http.HandlerFunc(c.alive),
		inspect.ReadyPath: readiness.Handler(c.needs()...),
	})
	return parts
}

// needs is what a controller needs to serve proxies, and API servers. Whether it leads is not
// among it, as all replicas serve; nor is the webhook's certificate, without which API servers
// go on as well.
func (c *controller) needs() []readiness.Part {
	until := func(done *atomic.Bool, text string) func() error {
		return func() error {
			if done.Load() {
				return nil
			}
			return errors.New(text)
		}
	}
	parts := []readiness.Part{
		{Name: "ca", Lacks: func() error { return c.ca.Usable() }},
		{Name: "source", Lacks: c.unlisted},
		{Name: "bootstrap listener", Lacks: until(&c.bootstrap, "it is not open yet")},
		{Name: "stream listener", Lacks: until(&c.stream, "it is not open yet")},
	}
	if c.claim != nil {
		parts = append(parts, readiness.Part{Name: "releases", Lacks: c.claim.Lacks})
	}
	if c.f.webhookBind != "" {
		parts = append(parts, readiness.Part{Name: "webhook listener", Lacks: func() error { return c.webhook.Lacks() }})
	}
	return parts
}

// unlisted is why the source's first list is not in effect yet. That the source is behind later is
// told by status and metrics: what is known is served.
func (c *controller) unlisted() error {
	if c.synced.Load() {
		return nil
	}
	if lacks := c.platform.lacks; lacks != nil {
		if err := lacks(); err != nil {
			return err
		}
	}
	return errors.New("objects are not all listed yet")
}

// alive asks parts something that one which hangs does not answer. Nothing outside of the
// process has a say: a restart mends none of that.
func (c *controller) alive(w http.ResponseWriter, _ *http.Request) {
	_, _ = c.ca.Fault(), c.statuses.Settled()
	fmt.Fprintln(w, "ok")
}
