//go:build cluster

package kubernetes_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/meshconfig"
)

const projectedName = "aether-mesh-config"

// projected is what is in the ConfigMap; nil: there is none.
func (r *rig) projected(ctx context.Context) map[string]string {
	m, err := r.core.ConfigMaps(namespace).Get(ctx, projectedName, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	if m.Data == nil {
		return map[string]string{}
	}
	return m.Data
}

// has waits until the ConfigMap has this and nothing else.
func (r *rig) has(when string, want map[string]string) {
	r.Helper()
	r.eventually(when, func(ctx context.Context) bool { return maps.Equal(r.projected(ctx), want) })
}

// condition is status, reason, observed generation and message of Projected.
func (r *rig) condition(ns string) string {
	return r.jsonpath("meshconfig", ns, "default", `{range .status.conditions[?(@.type=="Projected")]}{.status} {.reason} {.observedGeneration} {.message}{end}`)
}

// says waits until Projected begins so.
func (r *rig) says(ns, want string) {
	r.Helper()
	got := ""
	r.eventually("Projected of "+ns+" is "+want, func(context.Context) bool {
		if now := r.condition(ns); now != got {
			got = now
			r.Logf("Projected of %s is %s", ns, got)
		}
		return strings.HasPrefix(got, want)
	})
}

func rateText(rate int) string {
	return fmt.Sprintf("proxy:\n  accessLogSuccessSampleRate: %d\n", rate)
}

func mesh(ns string, rate int) string { return fmt.Sprintf(meshConfig, ns, rate) }

const threeNamespaces = `
apiVersion: v1
kind: Namespace
metadata: {name: aether-system}
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: v1
kind: Namespace
metadata: {name: later}
`

const teamGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: team}
spec: {gatewayClassName: coxswain, listeners: [{name: http, port: 80, protocol: HTTP}]}
`

// forbidding has the API server refuse writes of the ConfigMap.
const forbidding = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: forbid-projection}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps], resourceNames: [aether-mesh-config]}]
  validations: [{expression: "false", message: closed for today}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: forbid-projection}
spec: {policyName: forbid-projection, validationActions: [Deny]}
`

func TestMeshConfigsAreProjected(t *testing.T) {
	r := newRig(t)
	r.kubectl(threeNamespaces, "create", "-f", "-")
	controller := r.startController()
	r.kubectl(mesh(namespace, 0)+"---"+mesh("team", 20), "create", "-f", "-")
	r.has("both", map[string]string{"mesh-config.yaml": rateText(0), "ns.team.yaml": rateText(20)})
	r.says(namespace, "True Projected 1 key mesh-config.yaml of ConfigMap aether-system/aether-mesh-config")
	r.says("team", "True Projected 1 key ns.team.yaml of ConfigMap aether-system/aether-mesh-config")
	r.kubectl(mesh("team", 30), "apply", "--server-side", "--force-conflicts", "-f", "-")
	r.has("an edit", map[string]string{"mesh-config.yaml": rateText(0), "ns.team.yaml": rateText(30)})
	r.says("team", "True Projected 2")

	// What others write there.
	own := map[string]string{"mesh-config.yaml": rateText(0), "ns.team.yaml": rateText(30)}
	theirs := maps.Clone(own)
	theirs["notes.txt"] = "theirs"
	r.kubectl("", "patch", "configmap", projectedName, "-n", namespace, "--type=merge", "-p", `{"data":{"ns.team.yaml":"proxy: {}","ns.ghost.yaml":"proxy: {}","notes.txt":"theirs"}}`)
	r.has("an edit by hand is put right", theirs)
	r.kubectl(fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {mesh-config.yaml: \"{}\", ns.other.yaml: \"{}\"}\n", projectedName, namespace),
		"apply", "--server-side", "--force-conflicts", "--field-manager=gitops", "-f", "-")
	r.has("another field manager's, too", theirs)
	r.kubectl("", "delete", "configmap", projectedName, "-n", namespace)
	r.has("it is made again", own)
	r.kubectl("", "delete", "meshconfig", "default", "-n", "team")
	r.has("a MeshConfig that is gone", map[string]string{"mesh-config.yaml": rateText(0)})

	// The API refuses it.
	r.kubectl(forbidding, "create", "-f", "-")
	r.eventually("the API server refuses it", func(ctx context.Context) bool {
		_, err := r.server.Kubectl(ctx, "", "annotate", "configmap", projectedName, "-n", namespace, "--dry-run=server", "--overwrite", "a=b")
		return err != nil && strings.Contains(err.Error(), "closed for today")
	})
	r.kubectl(mesh("team", 40), "create", "-f", "-")
	r.says("team", "False ApplyFailed 1 write ConfigMap aether-system/aether-mesh-config: ")
	if got := r.condition("team"); !strings.Contains(got, "closed for today; will retry") {
		t.Errorf("it does not say why: %s", got)
	}
	if got := r.condition(namespace); !strings.HasPrefix(got, "True Projected 1") {
		t.Errorf("one that is in the ConfigMap as it is to be says %s", got)
	}
	r.kubectl("", "delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", "--all")
	r.has("when it takes it again", map[string]string{"mesh-config.yaml": rateText(0), "ns.team.yaml": rateText(40)})
	r.says("team", "True Projected 1")

	// At rest nothing is written, and a controller that starts finds nothing to do.
	version := r.jsonpath("configmap", namespace, projectedName, "{.metadata.resourceVersion}")
	end(controller)
	r.startController()
	r.kubectl(mesh("default", 50), "create", "-f", "-")
	r.says("default", "True Projected 1")
	r.kubectl("", "delete", "meshconfig", "default", "-n", "default")
	r.has("as it was", map[string]string{"mesh-config.yaml": rateText(0), "ns.team.yaml": rateText(40)})
	if writes := r.writesSince(version); writes != 2 {
		t.Errorf("%d writes for two changes and a restart", writes)
	}
}

// writesSince is how often the ConfigMap was written after a version.
func (r *rig) writesSince(version string) int {
	r.Helper()
	// Each write is an event of a watch from there.
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	w, err := r.core.ConfigMaps(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: version, FieldSelector: "metadata.name=" + projectedName})
	if err != nil {
		r.Fatal(err)
	}
	defer w.Stop()
	last := r.jsonpath("configmap", namespace, projectedName, "{.metadata.resourceVersion}")
	n := 0
	// Exits: the last write has come; the watch ends.
	for e := range w.ResultChan() {
		m, is := e.Object.(*corev1.ConfigMap)
		if !is {
			r.Fatalf("the watch says %v", e)
		}
		n++
		if m.ResourceVersion == last {
			return n
		}
	}
	r.Fatal("the watch ended early")
	return 0
}

// A MeshConfig that nobody can use, let in by definitions that were weakened, replaces nothing,
// also for a controller that starts later.
func TestARefusedMeshConfigOutlivesTheControllerAsItWas(t *testing.T) {
	r := newRig(t)
	r.kubectl(threeNamespaces, "create", "-f", "-")
	r.kubectl("", "patch", "customresourcedefinition", "meshconfigs.config.aether.io", "--type=json", "-p",
		`[{"op":"remove","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties"}]`)
	r.kubectl(teamGateway, "create", "-f", "-")
	controller := r.startController()
	r.kubectl(mesh(namespace, 10)+"---"+mesh("team", 20)+"---"+mesh("default", 25), "create", "-f", "-")
	own := map[string]string{"mesh-config.yaml": rateText(10), "ns.team.yaml": rateText(20), "ns.default.yaml": rateText(25)}
	r.has("all", own)

	r.eventually("an invalid one is let in", func(ctx context.Context) bool { // as soon as the API server has the new definition
		_, err := r.server.Kubectl(ctx, mesh(namespace, 200), "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err == nil
	})
	r.kubectl(mesh("team", 300)+"---"+mesh("default", 400), "apply", "--server-side", "--force-conflicts", "-f", "-")
	for _, ns := range []string{namespace, "team", "default"} {
		r.says(ns, "False InvalidConfig 2 ")
		if got := r.condition(ns); !strings.Contains(got, "proxy.accessLogSuccessSampleRate") || !strings.Contains(got, "the last good version stays in effect") {
			t.Errorf("Projected of %s does not say the path and what is in effect: %s", ns, got)
		}
	}
	// The release namespace's is for all, and team has a Gateway. That of a namespace without one is in
	// effect for nobody, and not kept.
	r.eventually("last good versions are kept", func(ctx context.Context) bool {
		return r.left(ctx, "aether-last-good", "objects") == "MeshConfig/"+namespace+"/default\nMeshConfig/team/default\n"
	})
	r.has("nothing was written", own)

	end(controller)
	r.startController()
	// That it looked at them is seen by one that came later.
	r.kubectl(mesh("later", 30), "create", "-f", "-")
	own["ns.later.yaml"] = rateText(30)
	r.has("after a restart", own)
	for ns, rate := range map[string]string{namespace: "10", "team": "20"} {
		r.eventually("what is in effect is the last good version", func(context.Context) bool {
			return r.jsonpath("meshconfig", ns, "default", `{.status.effective.proxy.accessLogSuccessSampleRate.value}`) == rate
		})
	}
	if got := r.condition(namespace); !strings.HasPrefix(got, "False InvalidConfig 2 ") {
		t.Errorf("after a restart it says %s", got)
	}

	r.kubectl("", "delete", "meshconfig", "default", "-n", "default")
	delete(own, "ns.default.yaml")
	r.kubectl(mesh(namespace, 11)+"---"+mesh("team", 22), "apply", "--server-side", "--force-conflicts", "-f", "-")
	own["mesh-config.yaml"], own["ns.team.yaml"] = rateText(11), rateText(22)
	r.has("when they are mended", own)
	r.says(namespace, "True Projected 3")
}

// A leader that is halted in the middle of writing, and goes on when another leads, changes nothing.
func TestTheProjectionFollowsTheLeader(t *testing.T) {
	r := newRig(t)
	r.kubectl(threeNamespaces, "create", "-f", "-")
	a, b := r.startReplica("controller-a"), r.startReplica("controller-b")
	leads, follows := r.leader(a, b)
	edits := 0
	edit := func() {
		edits++
		r.kubectl(mesh("team", edits%100), "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	var halted sync.WaitGroup
	stop := make(chan struct{})
	halted.Go(func() { // ends with stop
		for {
			select {
			case <-stop:
				return
			default:
				edit()
			}
		}
	})
	r.eventually("it is projected", func(ctx context.Context) bool { return len(r.projected(ctx)) == 1 })
	if err := leads.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	r.eventually("the other leads", follows.leads)
	close(stop)
	halted.Wait()
	r.has("by the other", map[string]string{"ns.team.yaml": rateText(edits % 100)})
	if err := leads.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	r.eventually("the first leads no more", func(ctx context.Context) bool { return leads.ready(ctx) && !leads.leads(ctx) })
	for range 5 {
		edit()
		r.has("the last edit", map[string]string{"ns.team.yaml": rateText(edits % 100)})
	}
	r.says("team", fmt.Sprintf("True Projected %d", edits))
	follows.kill()
	edit()
	r.eventually("the first leads again", leads.leads)
	r.has("by the first again", map[string]string{"ns.team.yaml": rateText(edits % 100)})
}

// specs is a spec of each set of fields, at its bounds and between.
func specs() []*configv1.MeshConfigSpec {
	out := []*configv1.MeshConfigSpec{{}, {Proxy: &configv1.ProxyConfig{}}}
	flags := []*bool{nil, proto.Bool(false), proto.Bool(true)}
	for _, logs := range flags {
		for _, rate := range []*uint32{nil, proto.Uint32(0), proto.Uint32(100)} {
			for _, tracing := range flags {
				for _, share := range []*float64{nil, proto.Float64(0), proto.Float64(1.0 / 3), proto.Float64(1e-7), proto.Float64(1)} {
					for _, pod := range flags {
						out = append(out, &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{
							AccessLogsEnabled: logs, AccessLogSuccessSampleRate: rate, TracingEnabled: tracing, TraceSampleRate: share, EmitStatsPod: pod,
						}})
					}
				}
			}
		}
	}
	return out
}

// many is how many MeshConfigs there are in the test of many. The default has every spec; 5,000
// take minutes, most of them to be made.
var many = flag.Int("meshconfigs", len(specs()), "how many MeshConfigs there are in the test of many")

// Whatever goes through the API server, the informer and the projection is read as it was written.
func TestManyMeshConfigsAreProjectedAsTheyWereWritten(t *testing.T) {
	n := *many
	r := newRig(t)
	r.kubectl(threeNamespaces, "create", "-f", "-")
	r.startController()
	all := specs()
	want := map[string]*configv1.MeshConfigSpec{}
	client, err := dynamic.NewForConfig(r.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() { // ends when there is no more work
			for i := range work {
				if err := r.create(client, name(i), all[i%len(all)]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		want["ns."+name(i)+".yaml"] = all[i%len(all)]
		work <- i
	}
	close(work)
	workers.Wait()
	var got map[string]string
	r.eventually("all are projected", func(ctx context.Context) bool {
		got = r.projected(ctx)
		return len(got) == n
	})
	for key, spec := range want {
		read, unknown, err := meshconfig.Parse([]byte(got[key]))
		if err != nil || len(unknown) > 0 || !proto.Equal(spec, read) {
			t.Fatalf("%s is %q, which reads %v (%v, %v), want %v", key, got[key], read, unknown, err, spec)
		}
	}
	r.eventually("all say so", func(context.Context) bool { return len(r.without(name, n, "Projected")) == 0 })

	// Somebody else takes the room of half of them: those at the end of the alphabet are left out and say so.
	size := 0
	for k, v := range got {
		size += len(k) + len(v)
	}
	big, err := json.Marshal(map[string]any{"data": map[string]string{"big": strings.Repeat("x", configmap.MaxContent-size/2)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.core.ConfigMaps(namespace).Patch(t.Context(), projectedName, types.MergePatchType, big, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	var fits int
	r.eventually("some are left out", func(ctx context.Context) bool {
		fits = len(r.projected(ctx)) - 1
		return fits > 0 && fits < n
	})
	r.eventually("those say so", func(context.Context) bool { return len(r.without(name, n, "Projected")) == n-fits })
	left := r.without(name, n, "Projected")
	if first, last := left[0], left[len(left)-1]; first != name(fits) || last != name(n-1) {
		t.Errorf("those left out go from %s to %s, want %s to %s", first, last, name(fits), name(n-1))
	}
	r.says(name(n-1), "False ApplyFailed 1 there is no room for key ns."+name(n-1)+".yaml in ConfigMap aether-system/aether-mesh-config")
	// The release namespace's is always in.
	r.kubectl(mesh(namespace, 1), "create", "-f", "-")
	r.says(namespace, "True Projected 1")
	r.kubectl("", "patch", "configmap", projectedName, "-n", namespace, "--type=json", "-p", `[{"op":"remove","path":"/data/big"}]`)
	r.eventually("there is room again", func(context.Context) bool { return len(r.without(name, n, "Projected")) == 0 })
}

func name(i int) string { return fmt.Sprintf("team-%04d", i) }

// create makes a namespace with a MeshConfig.
func (r *rig) create(client dynamic.Interface, ns string, spec *configv1.MeshConfigSpec) error {
	if _, err := r.core.Namespaces().Create(r.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	text, err := json.Marshal(&configv1.MeshConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: configv1.GroupVersion().String(), Kind: configv1.KindMeshConfig}, ObjectMeta: metav1.ObjectMeta{Name: "default", Namespace: ns}, Spec: spec,
	})
	if err != nil {
		return err
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(text); err != nil {
		return err
	}
	_, err = client.Resource(configv1.GroupVersion().WithResource("meshconfigs")).Namespace(ns).Create(r.Context(), o, metav1.CreateOptions{})
	return err
}

// without is those of n namespaces whose MeshConfig does not have that reason, sorted.
func (r *rig) without(name func(int) string, n int, reason string) []string {
	r.Helper()
	out, err := r.server.Kubectl(r.Context(), "", "get", "meshconfigs", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace} {.status.conditions[?(@.type=="Projected")].reason}{"\n"}{end}`)
	if err != nil {
		r.Fatal(err)
	}
	has := map[string]string{}
	for line := range strings.Lines(out) {
		ns, why, _ := strings.Cut(strings.TrimSpace(line), " ")
		has[ns] = why
	}
	var list []string
	for i := range n {
		if has[name(i)] != reason {
			list = append(list, name(i))
		}
	}
	slices.Sort(list)
	return list
}
