//go:build cluster

// Package chaos_test has everything that Aether runs on taken away for a while, one thing
// after the other, under constant traffic of which every answer is counted. After each fault
// a new route must come to life.
package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/release"
)

// Tenants of testdata/world.yaml, each with a Gateway of the same name, port and host.
const (
	stays = "stays" // through all of it
	goes  = "goes"  // is deleted
)

// scenario is one fault.
type scenario struct {
	name string
	// cuts is how often WebSockets that are held open are ended: as often as a proxy that has
	// one ends on purpose, when the drain that it was given is over.
	cuts  int
	fault func(*rig)
}

// The order matters: the first brings what the others are about, and each leaves a system
// that works.
var scenarios = []scenario{
	{"the chart is upgraded from the previous revision", 4, (*rig).upgrade},
	{"the controller's pod is deleted", 0, (*rig).deleteController},
	{"there is no controller", 0, (*rig).scaleController},
	{"a proxy's pod is deleted", 2, (*rig).deleteProxy},
	{"the trust bundle is deleted, and overwritten with nonsense", 2, (*rig).spoilTrust},
	{"etcd is killed", 0, (*rig).killEtcd},
	{"the node's kubelet is killed", 0, (*rig).killKubelet},
	{"a tenant's namespace is deleted", 0, (*rig).deleteTenant},
	{"the API server is away for two minutes", 0, (*rig).stopAPIServer},
	{"the GatewayClass is deleted", 0, (*rig).deleteClass},
	{"it is taken away by force, and made anew", 0, (*rig).remakeClass},
}

func TestNoRequestIsLostWhen(t *testing.T) {
	r := newRig(t)
	old := r.before()
	if err := old.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	manifest, err := os.ReadFile("testdata/world.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tenant := range []string{stays, goes} {
		r.kubectl(strings.NewReplacer("NAMESPACE", tenant, "IMAGE", release.ProbeImage).Replace(string(manifest)), "apply", "-f", "-")
	}
	for _, tenant := range []string{stays, goes} {
		r.answers(r.address(tenant), shop, http.StatusOK)
	}
	for _, s := range scenarios {
		t.Run(s.name, func(t *testing.T) {
			r := r.on(t)
			r.works()
			load := send(t, r.address(stays))
			s.fault(r)
			r.works()
			load.check(t, s.cuts)
		})
	}
}

// address is where a tenant's Gateway is reached.
func (r *rig) address(tenant string) string {
	r.Helper()
	var address string
	r.eventually("Gateway "+tenant+"/web has an address", func(ctx context.Context) error {
		address = r.field(ctx, "gateway/web", tenant, "{.status.addresses[0].value}")
		if address == "" {
			return errors.New("it has none")
		}
		return nil
	})
	return address + ":80"
}

// works sees a new route come to life and go, everything of ours be ready, and no status be
// about something older than what it is about.
func (r *rig) works() {
	r.Helper()
	*r.routes++
	name := "new-" + strconv.Itoa(*r.routes)
	route := fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: %s}
spec:
  parentRefs: [{name: web}]
  hostnames: [%s.example.com]
  rules: [{backendRefs: [{name: backend, port: 80}]}]
`, name, stays, name)
	address := r.address(stays)
	r.kubectl(route, "create", "-f", "-")
	r.answers(address, name+".example.com", http.StatusOK)
	r.eventually("the new route is accepted", func(ctx context.Context) error {
		return want(r.field(ctx, "httproute/"+name, stays, `{.status.parents[0].conditions[?(@.type=="Accepted")].status}`), "True")
	})
	r.kubectl("", "delete", "httproute", "--namespace="+stays, name)
	r.answers(address, name+".example.com", http.StatusNotFound)
	for _, deployment := range []string{"aether-controller", "coxswain-shared-proxy"} {
		r.kubectl("", "rollout", "status", "--namespace="+release.Namespace, "deployment/"+deployment, "--timeout="+patience.String())
	}
	r.eventually("Gateway stays/web is programmed", func(ctx context.Context) error {
		return want(r.field(ctx, "gateway/web", stays, `{.status.conditions[?(@.type=="Programmed")].status} {.status.listeners[0].attachedRoutes}`), "True 1")
	})
	for _, address := range r.pods("shared-proxy") {
		r.says(address+":8082", "/readyz", `"state":"Ready"`)
	}
	for _, address := range r.pods("controller") {
		r.says(address+":8082", "/readyz", `"ready":true`)
	}
}

// pods are the addresses of a component's pods by their names, those that are ending not
// among them.
func (r *rig) pods(component string) map[string]string {
	r.Helper()
	text := r.kubectl("", "get", "pods", "--namespace="+release.Namespace, "--selector=app.kubernetes.io/component="+component,
		`--output=jsonpath={range .items[*]}{.metadata.name} {.status.podIP} {.metadata.deletionTimestamp}{"\n"}{end}`)
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			out[f[0]] = f[1]
		}
	}
	if len(out) == 0 {
		r.fatal(fmt.Errorf("there is no pod of component %s", component))
	}
	return out
}

// one is any of the pods.
func one(pods map[string]string) (name, address string) {
	for name, address = range pods {
		break
	}
	return name, address
}
