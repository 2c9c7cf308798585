package routing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/scope"
)

// newFronted is a replica whose Gateways are reached through Services.
func newFronted(t *testing.T) *replica {
	t.Helper()
	config := testConfig()
	config.Fronts = true
	return newConfigured(t, config)
}

func newConfigured(t *testing.T, config Config) *replica {
	t.Helper()
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return &replica{t: t, graph: g, worlds: map[scope.Scope]map[resource.Name]*resource.Resource{}, statuses: map[object.Key]Status{}}
}

var web = key.Name{Namespace: "shop", Name: "web"}

func ownScope(t *testing.T, n key.Name) scope.Scope {
	t.Helper()
	s, err := scope.Gateway(n.Namespace, n.Name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func classOf(name string) object.Change {
	return change(&gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 1},
		Spec:       gatewayv1.GatewayClassSpec{ControllerName: "config.aether.io/gateway-controller"},
	}, object.GatewayClass)
}

func gatewayOf(n key.Name, class, parameters string, created int64) object.Change {
	gw := &gatewayv1.Gateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: n.Name, Generation: 1, UID: "uid-1", CreationTimestamp: metav1.Unix(created, 0)},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: gatewayv1.ObjectName(class),
			Listeners:        []gatewayv1.Listener{{Name: "web", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}
	if parameters != "" {
		gw.Spec.Infrastructure = &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{
			Group: configv1.GroupName, Kind: configv1.KindGatewayParameters, Name: parameters,
		}}
	}
	return change(gw, object.Gateway)
}

func parametersOf(namespace, name string, spec configv1.GatewayParametersSpec) object.Change {
	return change(&configv1.GatewayParameters{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, Spec: spec}, object.GatewayParameters)
}

func routeTo(n key.Name) object.Change {
	return change(&gatewayv1.HTTPRoute{
		ObjectMeta: metav1.ObjectMeta{Namespace: n.Namespace, Name: "route", Generation: 1},
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(n.Name)}}},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: "shop", Port: ptr.To[gatewayv1.PortNumber](80)},
			}}}}},
		},
	}, object.HTTPRoute)
}

// serviceOf is the Service in front of a Gateway, of its own proxies or of the shared ones,
// with annotations in pairs.
func serviceOf(n key.Name, class string, own bool, port int32, address string, annotations ...string) object.Change {
	m := metav1.ObjectMeta{
		Namespace: "aether-system", Name: front.SharedName(n, class), Generation: 1,
		Labels:      map[string]string{front.ManagedByLabel: front.FieldManager},
		Annotations: map[string]string{front.OfAnnotation: n.String()},
	}
	if own {
		m.Namespace, m.Name = n.Namespace, front.OwnName(n, class)
	}
	for i := 0; i < len(annotations); i += 2 {
		m.Annotations[annotations[i]] = annotations[i+1]
	}
	s := &corev1.Service{ObjectMeta: m, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(port)}},
	}}
	if address != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	}
	return change(s, object.Service)
}

// places is the worlds that have the Gateway's listener; its route's cluster is there too.
func places(r *replica) []string {
	var out []string
	for s, world := range r.worlds {
		listener, cluster := false, false
		for n := range world {
			listener = listener || n.TypeURL == "type.googleapis.com/envoy.config.listener.v3.Listener"
			cluster = cluster || n.TypeURL == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
		}
		if listener && !cluster {
			r.t.Errorf("%s has a listener and no cluster", s)
		}
		if listener {
			out = append(out, s.String())
		}
	}
	slices.Sort(out)
	return out
}

func published(r *replica) []string {
	var out []string
	for _, a := range gatewayStatus(r.t, r, web.Object(object.Gateway)).Addresses {
		out = append(out, a.Value)
	}
	return out
}

// A change from shared to dedicated proxies, and back, one object at a time: at no moment
// is an address published whose proxies do not serve.
func TestAChangeOfProxiesServesBothUntilTheOldServiceGoes(t *testing.T) {
	r := newFronted(t)
	dedicated := configv1.GatewayParametersSpec{Mode: ptr.To(configv1.GatewayModeDedicated)}
	shared, own := "SharedPool", "Gateway/shop/web"
	backend := change(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop", Generation: 1}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, object.Service)
	r.apply(classOf("coxswain"), backend, routeTo(web), parametersOf("shop", "p", configv1.GatewayParametersSpec{}), gatewayOf(web, "coxswain", "p", 1))
	gone := func(own bool) object.Change {
		return object.Change{Key: serviceOf(web, "coxswain", own, 1, "").Key}
	}
	toOwn, toShared := parametersOf("shop", "p", dedicated), parametersOf("shop", "p", configv1.GatewayParametersSpec{})
	steps := []struct {
		what      string
		change    object.Change
		served    []string
		published []string
		counts    string // the world whose proxies status is about
	}{
		{"a shared Gateway with its Service", serviceOf(web, "coxswain", false, 10001, "192.0.2.1"), []string{shared}, []string{"192.0.2.1"}, shared},
		{"it is to be dedicated", toOwn, []string{shared}, []string{"192.0.2.1"}, shared},
		{"its own Service comes", serviceOf(web, "coxswain", true, 10007, ""), []string{own, shared}, []string{"192.0.2.1"}, shared},
		{"and has an address", serviceOf(web, "coxswain", true, 10007, "192.0.2.2"), []string{own, shared}, []string{"192.0.2.1"}, shared},
		{"it is ready", serviceOf(web, "coxswain", false, 10001, "192.0.2.1", front.SupersededAnnotation, "x"), []string{own, shared}, []string{"192.0.2.2", "192.0.2.1"}, own},
		{"the shared one is retired", serviceOf(web, "coxswain", false, 10001, "192.0.2.1", front.SupersededAnnotation, "x", front.RetiredAnnotation, "y"), []string{own, shared}, []string{"192.0.2.2"}, own},
		{"and gone", gone(false), []string{own}, []string{"192.0.2.2"}, own},
		{"it is to be shared again", toShared, []string{own}, []string{"192.0.2.2"}, own},
		{"the shared Service comes", serviceOf(web, "coxswain", false, 10002, "192.0.2.3"), []string{own, shared}, []string{"192.0.2.2"}, own},
		{"it is ready too", serviceOf(web, "coxswain", true, 10007, "192.0.2.2", front.SupersededAnnotation, "x"), []string{own, shared}, []string{"192.0.2.3", "192.0.2.2"}, shared},
		{"the wish changes meanwhile", toOwn, []string{own, shared}, []string{"192.0.2.3"}, shared},
		{"and once more", toShared, []string{own, shared}, []string{"192.0.2.3", "192.0.2.2"}, shared},
		{"its own is gone", gone(true), []string{shared}, []string{"192.0.2.3"}, shared},
	}
	for _, step := range steps {
		d := r.apply(step.change)
		if step.change.Key.Kind == object.Service && len(d.Fronts) > 0 {
			t.Errorf("%s: what is wanted changed with what is there: %v", step.what, d.Fronts)
		}
		if diff := cmp.Diff(step.served, places(r)); diff != "" {
			t.Errorf("%s: served (-want +got):\n%s", step.what, diff)
		}
		if diff := cmp.Diff(step.published, published(r)); diff != "" {
			t.Errorf("%s: published (-want +got):\n%s", step.what, diff)
		}
		for _, k := range []object.Key{web.Object(object.Gateway), {Kind: object.HTTPRoute, Namespace: "shop", Name: "route"}} {
			live := r.statuses[k].Live
			if len(live) != 1 || live[0].Scope.String() != step.counts {
				t.Errorf("%s: %s depends on %+v, want %s", step.what, k, live, step.counts)
			}
		}
	}
}

// Parameters that cannot be read any more leave the Gateway served by what it was served by
// last, whatever that was, and never by defaults.
func TestParametersThatAreGoneLeaveTheGatewayAsItWas(t *testing.T) {
	r := newFronted(t)
	spec := configv1.GatewayParametersSpec{
		Mode:    ptr.To(configv1.GatewayModeDedicated),
		Clients: &configv1.ClientPolicy{ProxyProtocol: &configv1.ProxyProtocol{Mode: ptr.To(configv1.ProxyProtocolRequire)}, TLS: &configv1.ClientTLS{MinVersion: ptr.To(configv1.TLS13)}},
	}
	p := parametersOf("shop", "p", spec)
	d := r.apply(classOf("coxswain"), routeTo(web), p, gatewayOf(web, "coxswain", "p", 1))
	f := d.Fronts[web]
	if f == nil || !f.Dedicated || f.Keep || f.UID != "uid-1" || f.Proxies.DrainSeconds != 600 || *f.Proxies.Replicas != 2 {
		t.Fatalf("wanted in front: %+v", f)
	}
	r.apply(serviceOf(web, "coxswain", true, 10007, "192.0.2.2", front.ParametersAnnotation, f.Parameters))
	listener := func() *resource.Resource {
		for n, res := range r.worlds[ownScope(t, web)] {
			if n.TypeURL == "type.googleapis.com/envoy.config.listener.v3.Listener" {
				return res
			}
		}
		return nil
	}
	before := listener()
	if before == nil {
		t.Fatal("no listener")
	}
	d = r.apply(object.Change{Key: p.Key})
	if f := d.Fronts[web]; f == nil || !f.Keep {
		t.Errorf("wanted in front: %+v", f)
	}
	if now := listener(); now == nil || now.Hash != before.Hash {
		t.Errorf("the listener changed or went: %v", now)
	}
	status := gatewayStatus(t, r, web.Object(object.Gateway))
	for _, c := range status.Conditions {
		if c.Type == "Accepted" && (c.Status != "False" || c.Reason != "InvalidParameters") {
			t.Errorf("Accepted is %+v", c)
		}
	}
	if len(status.Addresses) != 1 {
		t.Errorf("addresses %v", status.Addresses)
	}
	// A record that nobody can read is none.
	r.apply(serviceOf(web, "coxswain", true, 10007, "192.0.2.2", front.ParametersAnnotation, "{"))
	if now := listener(); now != nil {
		t.Error("the Gateway is served by defaults")
	}
	// What comes back counts.
	if d = r.apply(p); d.Fronts[web] == nil || d.Fronts[web].Keep || listener() == nil {
		t.Errorf("wanted in front: %+v", d.Fronts[web])
	}
}

// A GatewayClass that goes takes no Gateway with it, whoever starts in the meantime; one of another
// controller under its name does.
func TestAGatewayIsServedOnWhenItsClassGoes(t *testing.T) {
	web := key.Name{Namespace: "shop", Name: "web"}
	class := classOf("coxswain")
	foreign := change(&gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{Name: "coxswain", Generation: 1}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/another"},
	}, object.GatewayClass)
	for name, dedicated := range map[string]bool{"shared": false, "dedicated": true} {
		t.Run(name, func(t *testing.T) {
			world, spec := scope.SharedPool(), configv1.GatewayParametersSpec{}
			if dedicated {
				world, spec.Mode = ownScope(t, web), ptr.To(configv1.GatewayModeDedicated)
			}
			objects := []object.Change{routeTo(web), parametersOf("shop", "p", spec), gatewayOf(web, "coxswain", "p", 1)}
			r := newFronted(t)
			f := r.apply(append(objects, class)...).Fronts[web]
			service := serviceOf(web, "coxswain", dedicated, 10007, "192.0.2.2", front.ParametersAnnotation, f.Parameters)
			r.apply(service)
			listeners := func(of *replica) (n int) {
				for name := range of.worlds[world] {
					if name.TypeURL == "type.googleapis.com/envoy.config.listener.v3.Listener" {
						n++
					}
				}
				return n
			}
			if listeners(r) != 1 {
				t.Fatal("it is not served")
			}
			late := newFronted(t)
			fronts := map[string]*front.Front{
				"that was there":       r.apply(object.Change{Key: class.Key}).Fronts[web],
				"that starts after it": late.apply(append(objects, service)...).Fronts[web],
			}
			for who, g := range map[string]*replica{"that was there": r, "that starts after it": late} {
				if f := fronts[who]; f == nil || !f.Keep {
					t.Errorf("a graph %s wants in front: %+v", who, f)
				}
				if n := listeners(g); n != 1 {
					t.Errorf("a graph %s has %d listeners", who, n)
				}
				for _, c := range gatewayStatus(t, g, web.Object(object.Gateway)).Conditions {
					if c.Type == "Accepted" && (c.Status != "False" || !strings.Contains(c.Message, "GatewayClass coxswain does not exist; it is served as it was last")) {
						t.Errorf("Accepted is %+v", c)
					}
				}
			}
			if f := r.apply(class).Fronts[web]; f == nil || f.Keep {
				t.Errorf("when it is back, wanted in front: %+v", f)
			}
			if r.apply(foreign); listeners(r) != 0 {
				t.Error("it is served though its class is another's")
			}
		})
	}
}

// Two that would have one name: the older has it, and the younger says so.
func TestOfTwoGatewaysWithOneNameTheOlderHasIt(t *testing.T) {
	dedicated := configv1.GatewayParametersSpec{Mode: ptr.To(configv1.GatewayModeDedicated)}
	for name, tt := range map[string]struct {
		older, younger key.Name
		classes        [2]string
		parameters     [2]string
	}{
		"a shared Service":                           {key.Name{Namespace: "a", Name: "b-c"}, key.Name{Namespace: "a-b", Name: "c"}, [2]string{"x", "x"}, [2]string{}},
		"a shared Service that is a dedicated one's": {key.Name{Namespace: "aether-system", Name: "shop-web"}, key.Name{Namespace: "shop", Name: "web"}, [2]string{"x", "x"}, [2]string{"p"}},
		"a dedicated Service that is a shared one's": {key.Name{Namespace: "shop", Name: "web"}, key.Name{Namespace: "aether-system", Name: "shop-web"}, [2]string{"x", "x"}, [2]string{1: "p"}},
		"a dedicated account":                        {key.Name{Namespace: "shop", Name: "a"}, key.Name{Namespace: "shop", Name: "a-b"}, [2]string{"b-x", "x"}, [2]string{"p", "p"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, order := range [][2]int{{0, 1}, {1, 0}} {
				r := newFronted(t)
				r.apply(classOf("x"), classOf("b-x"), parametersOf("shop", "p", dedicated), parametersOf("aether-system", "p", dedicated))
				changes := []object.Change{gatewayOf(tt.older, tt.classes[0], tt.parameters[0], 1), gatewayOf(tt.younger, tt.classes[1], tt.parameters[1], 2)}
				fronts := map[key.Name]*front.Front{}
				for _, i := range order {
					maps.Copy(fronts, r.apply(changes[i]).Fronts)
				}
				if f := fronts[tt.older]; f == nil || f.Keep {
					t.Errorf("order %v: the older has %+v", order, f)
				}
				if f := fronts[tt.younger]; f == nil || !f.Keep {
					t.Errorf("order %v: the younger has %+v", order, f)
				}
				if got := programmedReason(gatewayStatus(t, r, tt.younger.Object(object.Gateway)).Conditions); got != "Invalid" {
					t.Errorf("order %v: the younger's Programmed is %s", order, got)
				}
			}
		})
	}
}

// fronted replaces some of the generator's Services by such as are in front of Gateways.
func (g *generator) fronted() object.Change {
	n := key.Name{Namespace: g.namespace(), Name: pick(g, "one", "two", "three")}
	var annotations []string
	for _, name := range []string{front.SupersededAnnotation, front.RetiredAnnotation} {
		if g.IntN(3) == 0 {
			annotations = append(annotations, name, "x")
		}
	}
	if g.IntN(2) == 0 {
		annotations = append(annotations, front.ParametersAnnotation, pick(g, "{}", "{", `{"mode":"Dedicated"}`, `{"clients":{"trustedHops":1}}`))
	}
	c := serviceOf(n, pick(g, "ours", "other-ours"), g.IntN(2) == 0, int32(10000+g.IntN(3)), pick(g, "", "127.0.0.1", "192.0.2.1"), annotations...)
	if g.IntN(4) == 0 {
		c.Object = nil
	}
	return c
}

func TestAnySequenceOfChangesBehindServicesEndsInWhatAFreshGraphGives(t *testing.T) {
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 2))}
			all := map[object.Key]object.Object{}
			r, fronts := newFronted(t), map[key.Name]*front.Front{}
			follow := func(d Delta, into map[key.Name]*front.Front) {
				for n, f := range d.Fronts {
					if into[n] = f; f == nil {
						delete(into, n)
					}
				}
			}
			for range 80 {
				c := g.change()
				if c.Refused = ""; g.IntN(3) == 0 {
					c = g.fronted()
				}
				if all[c.Key] = c.Object; c.Object == nil {
					delete(all, c.Key)
				}
				follow(r.apply(c), fronts)
			}
			fresh, anew := newFronted(t), map[key.Name]*front.Front{}
			var changes []object.Change
			for _, k := range shuffled(g, key.Sorted(all, object.Key.Compare)) {
				changes = append(changes, object.Change{Key: k, Object: copyOf(all[k])})
			}
			follow(fresh.apply(changes...), anew)
			requireEqual(t, []any{fresh.state(), anew}, []any{r.state(), fronts})
		})
	}
}
