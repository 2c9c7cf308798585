// Package rig is what a measurement on Kubernetes runs against: an API server with Aether,
// and a backend. Start brings an API server of its own, with the controller, a proxy and an
// Envoy as processes of this machine; Attach uses a cluster that has Aether.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/test/cluster/apiserver"
)

const (
	release    = "aether-system"
	account    = "coxswain-shared-proxy"
	class      = "coxswain"
	patience   = 5 * time.Minute
	controller = "aether-controller" // who it is to the API server
)

// Config is what a Rig of its own is made from.
type Config struct {
	Programs string // folder of aether-controller and aether-proxy
	Envoy    string
	Dir      string // for all files; its path must be short, as sockets are in it
}

// Rig is a running system.
type Rig struct {
	API      *API
	Backend  *Backend
	AuditLog string // empty: not known
	User     string // as which the controller writes; empty: not known

	c          Config
	server     *apiserver.Server // nil: it is another's
	controller process
	stream     string // ports of the controller
	boot       string
	programs   map[string]*program
	stop       []func()
}

// process is where a controller is looked at.
type process struct {
	pid     int    // 0: not known
	metrics string // host:port
}

// Start runs everything. What has started is stopped if it fails.
func Start(ctx context.Context, c Config) (*Rig, error) {
	r := &Rig{c: c, User: controller, programs: map[string]*program{}}
	if err := r.start(ctx); err != nil {
		err = fmt.Errorf("%w\n%s", err, r.logs())
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	var err error
	if r.server, err = apiserver.Open(r.c.Dir); err != nil {
		return err
	}
	r.stop = append(r.stop, r.server.Close)
	r.AuditLog = r.server.AuditLog
	if err := r.server.Ready(ctx); err != nil {
		return err
	}
	if err := r.define(ctx); err != nil {
		return err
	}
	if err := r.attach(r.server.Config); err != nil {
		return err
	}
	if err := r.identities(ctx); err != nil {
		return err
	}
	if err := r.namespace(ctx, Namespace); err != nil {
		return err
	}
	if err := r.API.Create(ctx, &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Spec: gatewayv1.GatewayClassSpec{
		ControllerName: "config.aether.io/gateway-controller",
	}}); err != nil {
		return err
	}
	return r.processes(ctx)
}

func (r *Rig) attach(config *rest.Config) error {
	var err error
	if r.API, err = newAPI(config); err != nil {
		return err
	}
	if r.Backend, err = startBackend(); err != nil {
		return err
	}
	r.stop = append(r.stop, r.Backend.close)
	return nil
}

// Kubectl runs kubectl as the administrator of an API server that the rig has started.
func (r *Rig) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	if r.server == nil {
		return "", errors.New("the cluster is another's: use its own kubectl")
	}
	return r.server.Kubectl(ctx, input, args...)
}

// Signal sends a signal to one of the programs that the rig has started: aether-controller,
// aether-proxy or envoy.
func (r *Rig) Signal(name string, sig os.Signal) error {
	p := r.programs[name]
	if p == nil {
		return fmt.Errorf("signal %s: the rig has not started it", name)
	}
	return p.cmd.Process.Signal(sig)
}

// Envoy asks the admin interface of the Envoy that the rig has started.
func (r *Rig) Envoy(ctx context.Context, path string) (string, error) {
	return r.EnvoyOf(ctx, "", path)
}

// EnvoyOf asks the Envoy of a proxy that was added.
func (r *Rig) EnvoyOf(ctx context.Context, proxy, path string) (string, error) {
	c := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(r.c.Dir, proxy, "admin.sock"))
		},
	}}
	defer c.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://envoy"+path, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return string(body), err
}

// Close ends what Start or Attach has started.
func (r *Rig) Close() {
	for len(r.stop) > 0 {
		last := len(r.stop) - 1
		r.stop[last]()
		r.stop = r.stop[:last]
	}
}

// Reach returns where the Gateway answers, host:port, when it does.
func (r *Rig) Reach(ctx context.Context, gateway string) (string, error) {
	if r.server != nil {
		return r.reachInternal(ctx, gateway)
	}
	var at string
	err := await(ctx, "an address of Gateway "+gateway, func(ctx context.Context) bool {
		var gw gatewayv1.Gateway
		if r.API.Get(ctx, Namespace, gateway, &gw) != nil || len(gw.Status.Addresses) == 0 {
			return false
		}
		at = net.JoinHostPort(gw.Status.Addresses[0].Value, "80")
		return answers(ctx, at)
	})
	return at, err
}

// Settled returns when the Gateway says that so many routes are attached, and, as far as the
// controller can be asked, nothing more is to be said of anything.
func (r *Rig) Settled(ctx context.Context, gateway string, routes int) error {
	return await(ctx, fmt.Sprintf("%d routes are attached to Gateway %s", routes, gateway), func(ctx context.Context) bool {
		var gw gatewayv1.Gateway
		if r.API.Get(ctx, Namespace, gateway, &gw) != nil || len(gw.Status.Listeners) == 0 || int(gw.Status.Listeners[0].AttachedRoutes) != routes {
			return false
		}
		pending, err := r.metric(ctx, "aether_status_pending")
		return err == nil && pending == 0
	})
}

// reachInternal gives the Service in front of a Gateway an address, which nobody else does
// here, and returns the port behind it.
func (r *Rig) reachInternal(ctx context.Context, gateway string) (string, error) {
	name, at := Namespace+"-"+gateway+"-"+class, ""
	err := await(ctx, "Service "+name, func(ctx context.Context) bool {
		s, err := r.API.Core.Services(release).Get(ctx, name, metav1.GetOptions{})
		if err != nil || len(s.Spec.Ports) == 0 {
			return false
		}
		at = fmt.Sprintf("127.0.0.1:%d", s.Spec.Ports[0].TargetPort.IntValue())
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)}}
		_, err = r.API.Core.Services(release).UpdateStatus(ctx, s, metav1.UpdateOptions{})
		return err == nil && answers(ctx, at)
	})
	return at, err
}

func answers(ctx context.Context, at string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/", http.NoBody)
	if err != nil {
		return false
	}
	c := &http.Client{Timeout: time.Second}
	defer c.CloseIdleConnections()
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return true
}

// await asks now and then until is holds.
func await(ctx context.Context, what string, is func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is(ctx) {
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: not after %s", what, patience), ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
