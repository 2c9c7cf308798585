//go:build cluster

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"aether.io/aether/internal/provision/hold"
	"aether.io/aether/test/cluster/release"
)

// outage is for how long the API server is away: longer than any lease, watch or back-off.
const outage = 2 * time.Minute

// upgrade brings this tree's charts and programs.
func (r *rig) upgrade() {
	images := func(ctx context.Context) string {
		return r.field(ctx, "deployments", release.Namespace, "{.items[*].spec.template.spec['initContainers','containers'][*].image}")
	}
	was := images(r.Context())
	if err := r.now.Up(r.Context()); err != nil {
		r.Fatal(err)
	}
	if now := images(r.Context()); now == was || was == "" {
		r.Errorf("before and after the images are %s", now)
	}
	// The old proxies are gone with the connections that they had.
	r.eventually("only new pods are left", func(ctx context.Context) error {
		return want(r.field(ctx, "pods", release.Namespace, "{.items[*].metadata.deletionTimestamp}"), "")
	})
}

// deletePod deletes a pod and returns when it is gone.
func (r *rig) deletePod(name string) {
	r.Helper()
	r.kubectl("", "delete", "pod", "--namespace="+release.Namespace, name, "--timeout="+patience.String())
}

func (r *rig) deleteController() {
	for name := range r.pods("controller") {
		r.deletePod(name)
	}
	// That the stream was lost is told by who lost it.
	for _, proxy := range r.pods("shared-proxy") {
		r.positive(proxy, "coxswain_discovery_client_reconnects_total")
	}
}

// scaleController has proxies alone, who say so and serve.
func (r *rig) scaleController() {
	scale := func(n string) {
		r.kubectl("", "scale", "--namespace="+release.Namespace, "deployment/aether-controller", "--replicas="+n)
	}
	scale("0")
	r.kubectl("", "wait", "--for=delete", "--namespace="+release.Namespace, "pod", "--selector=app.kubernetes.io/component=controller", "--timeout="+patience.String())
	for _, proxy := range r.pods("shared-proxy") {
		r.says(proxy+":8082", "/readyz", `"state":"Degraded"`)
	}
	r.tells("Degraded")
	scale("1")
}

func (r *rig) deleteProxy() {
	name, _ := one(r.pods("shared-proxy"))
	r.deletePod(name)
}

// spoilTrust does it twice; a proxy that starts meanwhile must find its way, too.
func (r *rig) spoilTrust() {
	const bundle = "coxswain-discovery-trust"
	content := func(ctx context.Context) string {
		return r.field(ctx, "configmap/"+bundle, release.Namespace, `{.data.ca\.crt}`)
	}
	good := content(r.Context())
	if !strings.HasPrefix(good, "-----BEGIN CERTIFICATE-----") {
		r.fatal(fmt.Errorf("the trust bundle is %q", good))
	}
	mended := func() {
		r.eventually("the trust bundle is as before", func(ctx context.Context) error { return want(content(ctx), good) })
	}
	r.kubectl("", "delete", "configmap", "--namespace="+release.Namespace, bundle)
	mended()
	name, _ := one(r.pods("shared-proxy"))
	r.kubectl("", "delete", "pod", "--namespace="+release.Namespace, name, "--wait=false")
	r.kubectl("", "patch", "configmap", "--namespace="+release.Namespace, bundle, "--type=merge", "--patch", `{"data":{"ca.crt":"nonsense","more":"nonsense"}}`)
	mended()
	r.kubectl("", "wait", "--for=delete", "--namespace="+release.Namespace, "pod/"+name, "--timeout="+patience.String())
}

// kill ends a program of the node and returns when it runs again.
func (r *rig) kill(name string) {
	r.Helper()
	starts := func(ctx context.Context) (int, error) {
		programs, err := r.node().Programs(ctx)
		for _, p := range programs {
			if p.Name == name && p.PID != 0 {
				return p.Starts, nil
			}
		}
		return 0, errors.Join(err, fmt.Errorf("%s does not run", name))
	}
	was, err := starts(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	if err := r.node().KillProgram(r.Context(), name); err != nil {
		r.Fatal(err)
	}
	r.eventually(name+" is started again", func(ctx context.Context) error {
		now, err := starts(ctx)
		if err == nil && now == was {
			err = errors.New("it was not")
		}
		return err
	})
}

func (r *rig) killEtcd() {
	r.kill("etcd")
	r.eventually("the API server writes", func(ctx context.Context) error {
		_, err := r.cluster.Kubectl(ctx, "", "annotate", "--overwrite", "--request-timeout=5s", "namespace", stays, "example.com/written=again")
		return err
	})
}

// killKubelet leaves the pods as they are: a kubelet that starts finds them.
func (r *rig) killKubelet() {
	pods := func() string {
		return r.kubectl("", "get", "pods", "--all-namespaces", `--output=jsonpath={range .items[*]}{.metadata.uid} {.status.containerStatuses[*].restartCount}{"\n"}{end}`)
	}
	lease := func(ctx context.Context) string {
		return r.field(ctx, "lease/node-1", "kube-node-lease", "{.spec.renewTime}")
	}
	was := pods()
	r.kill("kubelet")
	renewed := lease(r.Context())
	r.eventually("the kubelet tells of itself", func(ctx context.Context) error {
		if now := lease(ctx); now == "" || now == renewed {
			return errors.New("it does not")
		}
		return nil
	})
	r.kubectl("", "wait", "--for=condition=Ready", "node/node-1", "--timeout="+patience.String())
	if now := pods(); now != was {
		r.Errorf("pods and their restarts are\n%s\nwere\n%s", now, was)
	}
}

const class = "gatewayclass/coxswain"

// deleteClass has the class wait for its last Gateway: it goes on being one.
func (r *rig) deleteClass() {
	r.kubectl("", "delete", class, "--wait=false")
	if got := r.kubectl("", "get", class, "--output=jsonpath={.metadata.deletionTimestamp} {.metadata.finalizers}"); !strings.HasSuffix(got, ` ["`+hold.Finalizer+`"]`) {
		r.fatal(fmt.Errorf("the class that is in use is %q", got))
	}
	// A controller that starts now must find its Gateways served.
	r.deleteController()
}

// remakeClass takes the finalizer off by force, and makes the class anew. In between a controller
// starts that never saw it.
func (r *rig) remakeClass() {
	r.kubectl("", "patch", class, "--type=merge", "--patch", `{"metadata":{"finalizers":null}}`)
	r.kubectl("", "wait", "--for=delete", class, "--timeout="+patience.String())
	r.deleteController()
	r.kubectl(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"coxswain"},"spec":{"controllerName":"config.aether.io/gateway-controller"}}`, "create", "-f", "-")
	r.eventually("the new class is held", func(ctx context.Context) error {
		return want(r.field(ctx, class, "", "{.metadata.finalizers[0]}"), hold.Finalizer)
	})
}

// deleteTenant sees to it that nothing of the tenant's is left, and its address answers no
// more.
func (r *rig) deleteTenant() {
	address := r.address(goes)
	r.answers(address, shop, http.StatusOK)
	service := "service/" + goes + "-web-coxswain"
	port := r.kubectl("", "get", "--namespace="+release.Namespace, service, "--output=jsonpath={.spec.ports[0].targetPort}")
	r.kubectl("", "delete", "namespace", goes, "--timeout="+patience.String())
	r.eventually("its Service is gone", func(ctx context.Context) error {
		_, err := r.cluster.Kubectl(ctx, "", "wait", "--for=delete", "--namespace="+release.Namespace, service, "--timeout=1s")
		return err
	})
	for _, proxy := range r.pods("shared-proxy") {
		r.eventually("its port is closed at "+proxy, func(ctx context.Context) error {
			code, _, err := r.ask(ctx, "http://"+proxy+":"+port+"/", shop)
			if err == nil {
				return fmt.Errorf("it answers %d", code)
			}
			return nil
		})
	}
	if _, _, err := r.ask(r.Context(), "http://"+address+"/", shop); err == nil {
		r.Errorf("%s answers still", address)
	}
	all := r.kubectl("", "get", "services,configmaps,serviceaccounts,deployments", "--all-namespaces", "--selector=app.kubernetes.io/managed-by=aether-controller", "--output=yaml")
	if strings.Contains(all, goes+"/web") {
		r.Errorf("of the tenant is left:\n%s", all)
	}
}

// stopAPIServer has everything go on without it; who follows it says that it is away.
func (r *rig) stopAPIServer() {
	controller := r.pods("controller")
	if err := r.node().StopProgram(r.Context(), "kube-apiserver"); err != nil {
		r.Fatal(err)
	}
	over := time.NewTimer(outage)
	defer over.Stop()
	for _, address := range controller {
		r.says(address+":8082", "/healthz", "ok")
	}
	select {
	case <-over.C:
	case <-r.Context().Done():
		r.Fatal(r.Context().Err())
	}
	// It needs nothing of it to serve what it knows, and says that that may be old.
	for _, address := range controller {
		r.says(address+":8082", "/readyz", `"ready":true`)
		r.positive(address, "aether_source_faults")
	}
	r.tells("the API server does not answer")
	if err := r.node().StartProgram(r.Context(), "kube-apiserver"); err != nil {
		r.Fatal(err)
	}
	r.eventually("the API server is ready", func(ctx context.Context) error {
		_, err := r.cluster.Kubectl(ctx, "", "get", "--raw=/readyz", "--request-timeout=5s")
		return err
	})
}
