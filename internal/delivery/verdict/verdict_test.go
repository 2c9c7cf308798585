package verdict

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// proxies are what a test says they are.
type proxies struct {
	mu     sync.Mutex // guards list
	list   []fleet.Proxy
	events chan struct{}
}

func (p *proxies) Proxies() []fleet.Proxy {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.list)
}

func (p *proxies) Observe() (<-chan struct{}, func()) { return p.events, func() {} }

func (p *proxies) set(list ...fleet.Proxy) {
	p.mu.Lock()
	p.list = list
	p.mu.Unlock()
	select {
	case p.events <- struct{}{}:
	default:
	}
}

// proxy is a connected one of a scope whose check has a reason; "ok": it has none; "": there is no check.
func proxy(s scope.Scope, name, reason string) fleet.Proxy {
	p := fleet.Proxy{Peer: fleet.Peer{ID: name}, Scope: s, Connected: true}
	switch reason {
	case "":
	case "ok":
		p.Status.Checks = []fleet.Check{{Name: "stream", State: fleet.CheckFailed}, {Name: fleet.CheckTelemetry, State: fleet.CheckOK}}
	default:
		p.Status.Checks = []fleet.Check{{Name: fleet.CheckTelemetry, State: fleet.CheckFailed, Reason: reason, Since: time.Unix(60, 0)}}
	}
	return p
}

// rig is an engine that runs, and what it told.
type rig struct {
	*Engine
	proxies *proxies

	mu    sync.Mutex // guards what follows
	told  map[object.Key]Told
	tolds int
	said  string
	log   strings.Builder
}

const address = "otel.obs:4317"

var ca = object.Key{Kind: object.ConfigMap, Namespace: "aether-system", Name: "collector-ca"}

// start runs one in a bubble until the test ends.
func start(t *testing.T, of Collector) *rig {
	t.Helper()
	r := &rig{proxies: &proxies{events: make(chan struct{}, 1)}, told: map[object.Key]Told{}}
	var err error
	r.Engine, err = New(Config{
		Collector: of, ReleaseNamespace: "aether-system", Proxies: r.proxies,
		Tell: func(t Told) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told[t.Key] = t
			r.tolds++
		},
		Forget: func(k object.Key) {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.told, k)
		},
		Say: func(s string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.said = s
		},
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return r
}

// wait lets the bubble's clock go on.
func (r *rig) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// says is what was told of a namespace's MeshConfig.
func (r *rig) says(namespace string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, there := r.told[key(namespace)]
	switch {
	case !there:
		return ""
	case t.Absent:
		return "absent"
	}
	return fmt.Sprintf("%s %s: %s", t.Condition.Status, t.Condition.Reason, t.Condition.Message)
}

func (r *rig) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tolds
}

func key(namespace string) object.Key {
	return object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: "default"}
}

// mesh is the status of a namespace's MeshConfig, that logs or does not, in scopes.
func meshOf(namespace string, logs bool, scopes ...scope.Scope) routing.Status {
	v := &configv1.MeshConfigStatus{Effective: &configv1.MeshConfigEffective{}}
	v.Effective.Proxy.AccessLogsEnabled.Value = logs
	s := routing.Status{Key: key(namespace), UID: "1", Generation: 1, Value: v}
	for _, in := range scopes {
		s.Live = append(s.Live, routing.Requirement{Scope: in})
	}
	return s
}

func own(t *testing.T) scope.Scope {
	t.Helper()
	s, err := scope.Gateway("shop", "web")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const down = "CollectorUnreachable: it cannot be connected to"

func TestAConditionTellsOfThoseWhoSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, dedicated := scope.SharedPool(), own(t)
		r := start(t, Collector{Address: address})
		r.Update([]routing.Status{meshOf("aether-system", false, shared, dedicated), meshOf("shop", true, dedicated), meshOf("cart", true, shared), meshOf("idle", true)})
		r.proxies.set(proxy(shared, "a", ""), proxy(dedicated, "b", ""))
		r.wait(DefaultComeback - time.Second)
		if n := r.count(); n != 0 {
			t.Errorf("%d were told before proxies came back", n)
		}
		r.wait(2 * time.Second)
		unknown := "Unknown NothingSent: no proxy has had anything to send to otel.obs:4317 yet"
		for namespace, want := range map[string]string{"aether-system": "absent", "idle": "absent", "shop": unknown, "cart": unknown} {
			if got := r.says(namespace); got != want {
				t.Errorf("%s: %s, want %s", namespace, got, want)
			}
		}
		arrives := "True Delivered: what proxies send to otel.obs:4317 arrives"
		r.proxies.set(proxy(shared, "a", "ok"), proxy(dedicated, "b", down), proxy(dedicated, "c", "ok"))
		r.wait(2 * time.Second)
		if got := r.says("cart"); got != arrives {
			t.Errorf("cart: %s", got)
		}
		if got, want := r.says("shop"), "False CollectorUnreachable: what 1 of 2 connected proxies send to otel.obs:4317 does not arrive: it cannot be connected to (b since 1970-01-01T00:01:00Z); their traffic goes on"; got != want {
			t.Errorf("shop: %s", got)
		}
		if !strings.HasPrefix(r.said, "CollectorUnreachable: what 1 of 3") {
			t.Errorf("on the whole: %s", r.said)
		}
		r.proxies.set(proxy(shared, "n", ""), proxy(dedicated, "m", "")) // all others
		r.wait(2 * time.Second)
		if got := r.says("shop"); !strings.HasPrefix(got, "False ") {
			t.Errorf("shop, of which those who knew are gone: %s", got)
		}
		r.Update([]routing.Status{meshOf("shop", false, dedicated)})
		r.wait(2 * time.Second)
		if got := r.says("shop"); got != "absent" {
			t.Errorf("shop, which sends nothing now: %s", got)
		}
		r.Update([]routing.Status{{Key: key("cart")}})
		r.wait(2 * time.Second)
		if got := r.says("cart"); got != "" {
			t.Errorf("cart is gone, and it says %s", got)
		}
	})
}

func TestWhatAllSayAtOnceIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := scope.SharedPool()
		r := start(t, Collector{Address: address, Metrics: true})
		r.Update([]routing.Status{meshOf("aether-system", false, shared)})
		var list []fleet.Proxy
		for i := range 1000 {
			list = append(list, proxy(shared, fmt.Sprintf("p%03d", i), "ok"))
		}
		r.proxies.set(list...)
		r.wait(DefaultComeback + time.Second)
		before := r.count()
		for i := range list { // within a second
			list[i] = proxy(shared, list[i].ID, down)
			if i%50 == 0 {
				r.proxies.set(slices.Clone(list)...)
				r.wait(20 * time.Millisecond)
			}
		}
		r.proxies.set(list...)
		r.wait(2 * time.Second)
		if n := r.count() - before; n > 2 {
			t.Errorf("it took %d", n)
		}
		if got := r.says("aether-system"); !strings.Contains(got, "what 1000 of 1000 connected") || !strings.Contains(got, "p000 since") || !strings.HasSuffix(got, "; and 997 more); their traffic goes on") {
			t.Errorf("%s", got)
		}
		if n := strings.Count(r.log.String(), "\n"); n != 1 {
			t.Errorf("the log has %d lines:\n%s", n, r.log.String())
		}
		before = r.count()
		for range 100 {
			r.proxies.set(list...)
			r.wait(time.Second)
		}
		if n := r.count() - before; n != 0 {
			t.Errorf("at rest it told %d", n)
		}
	})
}

// What is told of an object that goes meanwhile is not told after it is forgotten: nothing would
// ever take it back.
func TestNothingIsToldOfWhatIsForgotten(t *testing.T) {
	var e *Engine
	told, forgotten := 0, 0
	locked := func() {
		if e.mu.TryLock() {
			e.mu.Unlock()
			t.Error("another may come between what is decided and what is told")
		}
	}
	e, err := New(Config{
		Collector: Collector{Address: address}, Proxies: &proxies{},
		Tell:   func(Told) { locked(); told++ },
		Forget: func(object.Key) { locked(); forgotten++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	e.Update([]routing.Status{meshOf("cart", true, scope.SharedPool())})
	e.pass(time.Now())
	e.Update([]routing.Status{{Key: key("cart")}})
	e.pass(time.Now())
	if told != 1 || forgotten != 1 {
		t.Errorf("told %d, forgotten %d", told, forgotten)
	}
}

// What it takes to look at a collector that is gone, of as many MeshConfigs as a cluster may have.
func BenchmarkACollectorThatIsGone(b *testing.B) {
	of := &proxies{}
	e, err := New(Config{Collector: Collector{Address: address}, Proxies: of, Tell: func(Told) {}})
	if err != nil {
		b.Fatal(err)
	}
	var all []routing.Status
	for i := range 2000 {
		all = append(all, meshOf(fmt.Sprintf("n%04d", i), true, scope.SharedPool()))
	}
	e.Update(all)
	for i := range 1000 {
		of.list = append(of.list, proxy(scope.SharedPool(), fmt.Sprintf("p%03d", i), down))
	}
	for i := range b.N {
		of.list[0].Status.Checks[0].Since = time.Unix(int64(i), 0)
		e.pass(time.Now())
	}
}

func TestMostSayWhatTheReasonIs(t *testing.T) {
	shared := scope.SharedPool()
	_, all := count([]fleet.Proxy{
		proxy(shared, "a", "CollectorRefuses: it answers with errors"), proxy(shared, "b", down), proxy(shared, "c", down), {Peer: fleet.Peer{ID: "gone"}, Scope: shared},
	})
	want := "what 3 of 3 connected proxies send to x:1 does not arrive: it cannot be connected to (a since 1970-01-01T00:01:00Z, it answers with errors; b since 1970-01-01T00:01:00Z; c since 1970-01-01T00:01:00Z); their traffic goes on"
	if got := all.message("x:1"); all.reason() != configv1.MeshConfigReasonCollectorUnreachable || got != want {
		t.Errorf("%s: %s", all.reason(), got)
	}
}

func TestAuthoritiesThatAreNoneAreSaidUntilTheyAreMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := scope.SharedPool()
		r := start(t, Collector{Address: address, CA: ca})
		r.Update([]routing.Status{meshOf("cart", true, shared)})
		r.proxies.set(proxy(shared, "a", "ok"))
		put := func(data map[string]string) {
			t.Helper()
			var o object.Object
			if data != nil {
				o = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ca.Namespace, Name: ca.Name}, Data: data}
			}
			r.Observe([]object.Change{{Key: ca, Object: o}}, false)
			r.wait(2 * time.Second)
		}
		expect := func(what, reason string) {
			t.Helper()
			if got := r.says("cart"); !strings.HasPrefix(got, reason) {
				t.Errorf("%s: %s, want %s", what, got, reason)
			}
		}
		r.wait(DefaultComeback + time.Second)
		expect("while it is not known", "True Delivered: ")
		r.Observe(nil, true)
		r.wait(2 * time.Second)
		expect("there is none", "False CollectorCAMissing: ConfigMap/aether-system/collector-ca does not exist; ")
		put(map[string]string{"other": "x"})
		expect("it has no entry", "False CollectorCAMissing: ConfigMap/aether-system/collector-ca has no entry ca.crt; ")
		put(map[string]string{"ca.crt": "nonsense"})
		expect("it is nonsense", "False CollectorCAInvalid: ConfigMap/aether-system/collector-ca: ca.crt: there is no PEM certificate; ")
		put(map[string]string{"ca.crt": authority(t, time.Hour)})
		expect("it is mended", "True Delivered: ")
		r.wait(time.Hour)
		expect("it has expired", "False CollectorCAExpired: ConfigMap/aether-system/collector-ca: every certificate in its ca.crt has expired, ")
		if r.said == "" {
			t.Error("on the whole nothing is wrong")
		}
		put(map[string]string{"ca.crt": authority(t, -time.Hour) + authority(t, time.Hour)})
		expect("one has not", "True Delivered: ")
		put(nil)
		expect("it is deleted", "False CollectorCAMissing: ")
		if n := strings.Count(r.log.String(), "level=WARN"); n != 4 { // missing, invalid, expired, missing
			t.Errorf("%d warnings:\n%s", n, r.log.String())
		}
	})
}

func TestWithoutACollectorNothingIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, Collector{})
		r.Update([]routing.Status{meshOf("cart", true, scope.SharedPool())})
		r.proxies.set(proxy(scope.SharedPool(), "a", down))
		r.wait(DefaultComeback + 2*time.Second)
		if got := r.says("cart"); got != "absent" || r.said != "" {
			t.Errorf("%s; on the whole %q", got, r.said)
		}
	})
}
