//go:build cluster

package provision_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/provision"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/source"
	"aether.io/aether/internal/source/kube"
	"aether.io/aether/test/cluster/apiserver"
)

const (
	shop     = "shop"
	patience = time.Minute
)

// realCluster is an API server, and an engine that sees what is in it. What controllers would
// make of Services the test makes.
type realCluster struct {
	*testing.T
	client kubernetes.Interface
	server *apiserver.Server
	stop   func() // the engine

	mu     sync.Mutex // guards what follows
	engine *provision.Engine
	lacks  map[key.Name]condition.Problem
	events []string
	log    bytes.Buffer
}

func (c *realCluster) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.log.Write(p)
}

func newRealCluster(t *testing.T) *realCluster {
	t.Helper()
	server := apiserver.Start(t)
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	c := &realCluster{T: t, client: client, server: server}
	for _, ns := range []string{namespace, shop} {
		labels := map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c.start(time.Second)
	follow, err := kube.New(kube.Config{Client: server.Config})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = follow.Run(ctx, func(_ context.Context, b source.Batch) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.engine.Update(b.Changes, nil, false)
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done; c.stop() })
	return c
}

// start runs an engine of which both Services of a Gateway stay for as long.
func (c *realCluster) start(overlap time.Duration) {
	c.Helper()
	text, err := os.ReadFile("pod/testdata/template.yaml")
	if err != nil {
		c.Fatal(err)
	}
	template, err := pod.Parse(text)
	if err != nil {
		c.Fatal(err)
	}
	engine, err := provision.New(provision.Config{
		Client: c.server.Config, Namespace: namespace, Selector: selector(), Template: template, Overlap: overlap, Retry: 100 * time.Millisecond,
		OnLack: func(lacks map[key.Name]condition.Problem) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.lacks = lacks
		},
		Tell: func(about corev1.ObjectReference, reason, note string) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.events = append(c.events, fmt.Sprintf("%s/%s %s: %s", about.Namespace, about.Name, reason, note))
		},
		Log: slog.New(slog.NewTextHandler(c, nil)),
	})
	if err != nil {
		c.Fatal(err)
	}
	c.mu.Lock()
	c.engine = engine
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = engine.Run(ctx) }()
	c.stop = sync.OnceFunc(func() { cancel(); <-done })
}

func (c *realCluster) want(fronts ...front.Front) {
	changed := map[key.Name]*front.Front{}
	for _, f := range fronts {
		changed[f.Gateway] = &f
	}
	c.engine.Update(nil, changed, true)
}

// eventually looks until nothing is wrong, or fails and says what is.
func (c *realCluster) eventually(what string, wrong func() string) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		why := wrong()
		if why == "" {
			return
		}
		select {
		case <-ctx.Done():
			c.Fatalf("%s: not after %s: %s\n%s", what, patience, why, c.state())
		case <-tick.C:
		}
	}
}

func (c *realCluster) state() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fmt.Sprintf("lacks %v\n%s", c.lacks, c.log.String())
}

// there is which of the objects of a Gateway's own proxies there are.
func (c *realCluster) there(gw front.Front) string {
	var out []string
	name := front.DeploymentName(gw.Gateway, gw.Class)
	ns := gw.Gateway.Namespace
	for kind, get := range map[string]func() error{
		"account": func() error {
			_, err := c.client.CoreV1().ServiceAccounts(ns).Get(c.Context(), front.Account(gw.Gateway, gw.Class), metav1.GetOptions{})
			return err
		},
		"autoscaler": func() error {
			_, err := c.client.AutoscalingV2().HorizontalPodAutoscalers(ns).Get(c.Context(), name, metav1.GetOptions{})
			return err
		},
		"budget": func() error {
			_, err := c.client.PolicyV1().PodDisruptionBudgets(ns).Get(c.Context(), name, metav1.GetOptions{})
			return err
		},
		"deployment": func() error {
			_, err := c.client.AppsV1().Deployments(ns).Get(c.Context(), name, metav1.GetOptions{})
			return err
		},
		"service": func() error {
			_, err := c.client.CoreV1().Services(ns).Get(c.Context(), front.OwnName(gw.Gateway, gw.Class), metav1.GetOptions{})
			return err
		},
	} {
		if get() == nil {
			out = append(out, kind)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (c *realCluster) has(gw front.Front, want string) func() string {
	return func() string {
		if got := c.there(gw); got != want {
			return fmt.Sprintf("there are %q, want %q", got, want)
		}
		return ""
	}
}

// lacking is whether the Gateway is said to lack something, in these words.
func (c *realCluster) lacking(gw front.Front, reason, words string) func() string {
	return func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if p := c.lacks[gw.Gateway]; p.Reason != reason || !strings.Contains(p.Message, words) {
			return fmt.Sprintf("it lacks %+v", p)
		}
		return ""
	}
}

func (c *realCluster) trust() {
	c.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: pod.TrustConfigMap}, Data: map[string]string{"other": "x"}}
	if _, err := c.client.CoreV1().ConfigMaps(shop).Create(c.Context(), m, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *realCluster) patch(resource, ns, name, subresource, text string) {
	c.Helper()
	args := []string{"patch", resource, "-n", ns, name, "--type=merge", "-p", text}
	if subresource != "" {
		args = append(args, "--subresource="+subresource)
	}
	if _, err := c.server.Kubectl(c.Context(), "", args...); err != nil {
		c.Fatal(err)
	}
}

// balance gives a Service an address and an endpoint, as controllers of a cluster do.
func (c *realCluster) balance(n key.Name, ip string) {
	c.Helper()
	c.patch("service", n.Namespace, n.Name, "status", fmt.Sprintf(`{"status":{"loadBalancer":{"ingress":[{"ip":%q}]}}}`, ip))
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{discoveryv1.LabelServiceName: n.Name, front.ManagedByLabel: front.FieldManager}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	if _, err := c.client.DiscoveryV1().EndpointSlices(n.Namespace).Create(c.Context(), s, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func ownGateway(name string) front.Front {
	gw := dedicated(gateway(shop, name, 80))
	gw.UID = "11111111-2222-3333-4444-555555555555"
	gw.Proxies = front.Proxies{Replicas: new(int32(2)), DrainSeconds: 30}
	return gw
}

const all = "account budget deployment service"

func TestProxiesAreMadeAndKeptAsTheyAreWanted(t *testing.T) {
	c := newRealCluster(t)
	gw := ownGateway("web")
	gw.Proxies.Dropped = []string{"podTemplate.annotations x is dropped"}
	c.want(gw)
	c.eventually("it waits for the trust bundle", c.lacking(gw, "Pending", "shop/"+pod.TrustConfigMap))
	if got := c.there(gw); got != "" {
		t.Errorf("before it is there are %q", got)
	}
	c.trust()
	c.eventually("all is made", c.has(gw, all))
	c.eventually("nothing is lacking", c.lacking(gw, "", ""))
	c.mu.Lock()
	if len(c.events) != 1 || c.events[0] != "shop/web PodTemplateFieldDropped: podTemplate.annotations x is dropped" {
		t.Errorf("events %q", c.events)
	}
	c.mu.Unlock()

	deployments := c.client.AppsV1().Deployments(shop)
	deployment := func() string {
		d, err := deployments.Get(t.Context(), "web-coxswain", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s %d %d %s %s", d.Spec.Template.Spec.Containers[0].Image, d.Spec.MinReadySeconds, *d.Spec.Replicas, d.Labels["theirs"], d.Labels[front.ManagedByLabel])
	}
	is := func(want string) func() string {
		return func() string {
			if got := deployment(); got != want {
				return got
			}
			return ""
		}
	}
	image := "docker.io/envoyproxy/envoy:v1.40.0"

	// Ours is put right, theirs stays.
	c.patch("deployment", shop, "web-coxswain", "", `{"metadata":{"labels":{"theirs":"x"}},"spec":{"minReadySeconds":3,"replicas":7}}`)
	c.eventually("what others changed", is(image+" 3 2 x aether-controller"))
	d, err := deployments.Get(t.Context(), "web-coxswain", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d.Spec.Template.Spec.Containers[0].Image = "evil"
	if _, err := deployments.Update(t.Context(), d, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("another image", is(image+" 3 2 x aether-controller"))
	c.patch("deployment", shop, "web-coxswain", "", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null}}}`)
	c.eventually("our label", is(image+" 3 2 x aether-controller"))
	if err := c.client.CoreV1().ServiceAccounts(shop).Delete(t.Context(), "web-coxswain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("the account comes back", c.has(gw, all))
	c.patch("serviceaccount", shop, "web-coxswain", "", `{"automountServiceAccountToken":true}`)
	c.eventually("the account mounts no token", func() string {
		a, err := c.client.CoreV1().ServiceAccounts(shop).Get(t.Context(), "web-coxswain", metav1.GetOptions{})
		if err != nil || *a.AutomountServiceAccountToken {
			return fmt.Sprint(a, err)
		}
		return ""
	})

	// A port that somebody adds to the Service is taken off, wherever it is put, as often as it comes.
	services := c.client.CoreV1().Services(shop)
	untouched, err := services.Get(t.Context(), "web-coxswain", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, place := range []string{"0", "-"} {
		patch := `[{"op":"add","path":"/spec/ports/` + place + `","value":{"name":"theirs","port":22,"protocol":"TCP"}}]`
		if _, err := c.server.Kubectl(t.Context(), "", "patch", "service", "-n", shop, "web-coxswain", "--type=json", "-p", patch); err != nil {
			t.Fatal(err)
		}
		c.eventually("the ports are ours alone", func() string {
			s, err := services.Get(t.Context(), "web-coxswain", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return cmp.Diff(untouched.Spec.Ports, s.Spec.Ports)
		})
	}

	// The replicas of an autoscaler are its own, from the first moment, and ours again without one.
	scaled := gw
	scaled.Proxies.Replicas, scaled.Proxies.Autoscaling = nil, &configv1.Autoscaling{MinReplicas: new(int32(2)), MaxReplicas: new(int32(9)), TargetCPUUtilizationPercentage: new(int32(50))}
	c.want(scaled)
	c.eventually("an autoscaler", c.has(gw, "account autoscaler budget deployment service"))
	if got := deployment(); got != image+" 3 2 x aether-controller" {
		t.Errorf("when it came the Deployment was %s", got)
	}
	c.patch("deployment", shop, "web-coxswain", "scale", `{"spec":{"replicas":5}}`)
	c.patch("deployment", shop, "web-coxswain", "", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"x"}}}`)
	c.eventually("what the autoscaler says, and our label", is(image+" 3 5 x aether-controller"))
	c.want(gw)
	c.eventually("the number is ours", is(image+" 3 2 x aether-controller"))
	c.eventually("no autoscaler", c.has(gw, all))

	// At rest nothing is written, nor by one who starts anew.
	version := func() string {
		d, err := deployments.Get(t.Context(), "web-coxswain", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return d.ResourceVersion
	}
	before := version()
	c.patch("service", shop, "web-coxswain", "", `{"metadata":{"annotations":{"theirs":"x"}}}`)
	c.patch("service", shop, "web-coxswain", "", `{"spec":{"selector":{"evil":"x"}}}`)
	c.eventually("the Service's selector", func() string {
		s, err := c.client.CoreV1().Services(shop).Get(t.Context(), "web-coxswain", metav1.GetOptions{})
		if err != nil || s.Spec.Selector["evil"] != "" || s.Annotations["theirs"] != "x" || len(s.OwnerReferences) != 1 {
			return fmt.Sprint(s, err)
		}
		return ""
	})
	if got := version(); got != before {
		t.Errorf("the Deployment was written, %s then %s", before, got)
	}

	// What is gone takes all with it.
	c.engine.Update(nil, map[key.Name]*front.Front{gw.Gateway: nil}, true)
	c.eventually("the end", c.has(gw, ""))
}

// Pods come up where the strictest standard is enforced, whatever is asked for.
func TestDedicatedPodsMeetTheRestrictedStandard(t *testing.T) {
	c := newRealCluster(t)
	c.trust()
	gw := ownGateway("web")
	gw.Labels = map[string]string{"team": "shop", "azure.workload.identity/use": "true"}
	gw.Annotations = map[string]string{"container.apparmor.security.beta.kubernetes.io/envoy": "unconfined", "eks.amazonaws.com/role-arn": "x"}
	gw.Proxies.Pod = configv1.PodTemplate{
		Annotations: gw.Annotations, Labels: gw.Labels,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, Env: []configv1.EnvVar{{Name: "TZ", Value: "$(POD_NAME)"}},
	}
	c.want(gw)
	c.eventually("all is made", c.has(gw, all))
	d, err := c.client.AppsV1().Deployments(shop).Get(t.Context(), "web-coxswain", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	p.Name = "web-1"
	made, err := c.client.CoreV1().Pods(shop).Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"unconfined", "Unconfined", "role-arn", "azure.workload", "hostPath", "kube-api-access", `"privileged":true`} {
		if strings.Contains(string(text), bad) {
			t.Errorf("the pod has %s: %s", bad, text)
		}
	}
	a, err := c.client.CoreV1().ServiceAccounts(shop).Get(t.Context(), "web-coxswain", metav1.GetOptions{})
	if err != nil || a.Annotations["eks.amazonaws.com/role-arn"] != "" || a.Labels["team"] != "shop" || made.Spec.ServiceAccountName != a.Name {
		t.Errorf("account %+v, %v, of the pod %s", a, err, made.Spec.ServiceAccountName)
	}
}

func TestWhatIsSomebodyElsesIsLeftAndNamed(t *testing.T) {
	c := newRealCluster(t)
	c.trust()
	gw := ownGateway("web")
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web-coxswain", Annotations: map[string]string{"a": "b"}}}
	if _, err := c.client.CoreV1().ServiceAccounts(shop).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.want(gw)
	c.eventually("it says so", c.lacking(gw, "Invalid", "serviceaccounts shop/web-coxswain exists and is not this Gateway's"))
	a, err := c.client.CoreV1().ServiceAccounts(shop).Get(t.Context(), "web-coxswain", metav1.GetOptions{})
	if err != nil || len(a.OwnerReferences) > 0 || a.Labels[front.ManagedByLabel] != "" {
		t.Errorf("the account is %+v, %v", a, err)
	}
	if err := c.client.CoreV1().ServiceAccounts(shop).Delete(t.Context(), "web-coxswain", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.eventually("when it is gone ours is made", c.has(gw, all))
	c.eventually("nothing is lacking", c.lacking(gw, "", ""))

	// What the API refuses is in the words of the API.
	far := ownGateway("web")
	far.Gateway.Namespace = "nowhere"
	far.Dedicated = true
	c.want(gw, far)
	c.eventually("no namespace", c.lacking(far, "Pending", "nowhere/"))
}

// A change of proxies goes on where it was when another engine takes over.
func TestAChangeOfProxiesSurvivesWhoDecidesIt(t *testing.T) {
	c := newRealCluster(t)
	c.trust()
	shared, own := gateway(shop, "web", 80), ownGateway("web")
	shared.UID = own.UID
	c.want(shared)
	exists := func(n key.Name, annotation string) func() string {
		return func() string {
			s, err := c.client.CoreV1().Services(n.Namespace).Get(t.Context(), n.Name, metav1.GetOptions{})
			if err != nil || annotation != "" && s.Annotations[annotation] == "" {
				return fmt.Sprint(err, s.Annotations)
			}
			return ""
		}
	}
	gone := func(n key.Name) func() string {
		return func() string {
			_, err := c.client.CoreV1().Services(n.Namespace).Get(t.Context(), n.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Sprint("it is there: ", err)
			}
			return ""
		}
	}
	c.eventually("the shared Service", exists(at(shared), ""))
	c.balance(at(shared), "192.0.2.1")
	c.stop()
	c.start(time.Hour)
	c.replay()
	c.want(own)
	c.eventually("its own", c.has(own, all))
	c.balance(ownAt(own), "192.0.2.2")
	c.eventually("the shared one is superseded", exists(at(shared), front.SupersededAnnotation))
	s, err := c.client.CoreV1().Services(namespace).Get(t.Context(), at(shared).Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	since := s.Annotations[front.SupersededAnnotation]

	// Another takes over: it neither begins anew nor ends what it does not know. It has less patience.
	c.stop()
	c.start(4 * time.Second)
	c.replay()
	c.want(own)
	c.eventually("it is retired", func() string {
		s, err := c.client.CoreV1().Services(namespace).Get(t.Context(), at(shared).Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if got := s.Annotations[front.SupersededAnnotation]; got != since {
			t.Errorf("superseded at %s, then at %s", since, got)
		}
		if s.Annotations[front.RetiredAnnotation] == "" {
			return "not yet"
		}
		return ""
	})
	c.eventually("and gone", gone(at(shared)))
	if got := c.there(own); got != all {
		t.Errorf("there are %q", got)
	}

	// While the parameters cannot be read nothing changes, and back.
	c.want(front.Front{Gateway: own.Gateway, Class: own.Class, Keep: true})
	c.stop()
	c.start(2 * time.Second)
	c.replay()
	c.want(front.Front{Gateway: own.Gateway, Class: own.Class, Keep: true}, gateway("blog", "web", 80))
	c.eventually("another Gateway's Service", exists(at(gateway("blog", "web", 80)), ""))
	if got := c.there(own); got != all {
		t.Errorf("of what is to be kept there are %q", got)
	}
	c.want(shared)
	c.eventually("the shared one comes back", exists(at(shared), ""))
	if got := c.there(own); got != all {
		t.Errorf("before it is ready there are %q", got)
	}
	if err := c.client.DiscoveryV1().EndpointSlices(namespace).Delete(t.Context(), at(shared).Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.balance(at(shared), "192.0.2.3")
	c.eventually("its own are gone", c.has(own, ""))
}

// replay shows the engine all that there is, as a controller that starts is.
func (c *realCluster) replay() {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.client.CoreV1().Services("").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range list.Items {
		s := &list.Items[i]
		c.engine.Update(changeOf(s, object.Service), nil, false)
	}
	ends, err := c.client.DiscoveryV1().EndpointSlices("").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range ends.Items {
		c.engine.Update(changeOf(&ends.Items[i], object.EndpointSlice), nil, false)
	}
	maps, err := c.client.CoreV1().ConfigMaps("").List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	for i := range maps.Items {
		c.engine.Update(changeOf(&maps.Items[i], object.ConfigMap), nil, false)
	}
}

func changeOf(o object.Object, kind object.Kind) []object.Change {
	return []object.Change{{Key: object.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, Object: o}}
}
