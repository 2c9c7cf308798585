package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/drain"
	"aether.io/aether/internal/inspect"
)

// The paths of the health port.
const (
	startPath = "/startz"  // 200 once Envoy may start
	alivePath = "/healthz" // 200 while the proxy's parts answer
)

// dialTimeout bounds looking whether the xDS socket listens.
const dialTimeout = time.Second

// state is the proxy's as /readyz says it.
func (p *proxy) state() health.State {
	s := p.stream.State()
	if d := p.drain.State(); d.Phase != drain.Serving {
		s = s.WhileDraining(d.Begun)
	}
	return s
}

// health is what the kubelet asks.
func (p *proxy) health() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+startPath, p.started)
	mux.HandleFunc("GET "+alivePath, p.alive)
	mux.Handle("GET "+inspect.ReadyPath, health.Handler(p.state))
	mux.Handle("GET "+drain.OverPath, p.drain.OverHandler())
	return mux
}

// started says that Envoy may start: its bootstrap was written before anything was served,
// and the socket that it connects to listens.
func (p *proxy) started(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", p.f.xdsSocket)
	if err != nil {
		http.Error(w, "the xDS socket does not listen yet", http.StatusServiceUnavailable)
		return
	}
	_ = c.Close()
	fmt.Fprintln(w, "ok")
}

// alive asks each part something that a part which hangs does not answer. Nothing outside
// of the process has a say: a restart mends none of that.
func (p *proxy) alive(w http.ResponseWriter, _ *http.Request) {
	_, _, _ = p.stream.State(), p.xds.Observed(), p.drain.State()
	fmt.Fprintln(w, "ok")
}
