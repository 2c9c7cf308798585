package client_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	discoveryv1 "aether.io/aether/api/discovery/v1"
	"aether.io/aether/internal/discovery/client"
	"aether.io/aether/internal/discovery/health"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
	"aether.io/aether/internal/test/controller"
)

func unavailable() error { return status.Error(codes.Unavailable, "going away") }

func readyz(t *testing.T, c *client.Client) (int, health.State) {
	t.Helper()
	w := httptest.NewRecorder()
	c.ReadyHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", nil))
	var s health.State
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, s
}

func TestFirstSnapshotBecomesLiveAndMakesReady(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	st := r.Next(t)
	sub := st.Subscribe
	if sub.GetNodeId() != "proxy-0" || sub.GetWireVersion() != 1 || sub.GetScope().GetSharedPool() == nil || sub.GetHaveVersion() != "" ||
		sub.GetBuild().GetVersion() != "v0" || sub.GetBuild().GetRevision() != "abc" || sub.GetEnvoyVersion() != "1.40.0" {
		t.Fatalf("subscribed with %v", sub)
	}
	if code, s := readyz(t, r.client); code != http.StatusServiceUnavailable || s.State != health.NotReady {
		t.Errorf("before: %d %+v", code, s)
	}

	big := res(t, "big", strings.Repeat("0123456789abcdef", 200<<10)) // 3.1 MiB: continued in several chunks
	all := append(many(t, 100), big)
	if n := st.Snapshot(whole(1, all...)); n < 4 {
		t.Fatalf("sent in %d chunks: too few for the test", n)
	}
	if a := st.Answer(t); a.Nonce != 1 || a.Version != version(all...) || len(a.Pending)+len(a.Refused) != 0 {
		t.Errorf("answered %+v", a)
	}
	u := <-r.envoy.applied
	if got := r.envoy.holding.Get(big.Name); !u.Full || got == nil || string(got.Payload) != string(big.Payload) {
		t.Error("the big resource did not arrive as it was")
	}
	if v := controller.Wait(t, "a live version", r.live); v != version(all...) {
		t.Errorf("live is %s", v)
	}
	r.state(t, health.Ready, "")
	if code, s := readyz(t, r.client); code != http.StatusOK || s.State != health.Ready || s.Version != version(all...) || s.Since.IsZero() || len(s.Checks) != 4 {
		t.Errorf("after: %d %+v", code, s)
	}

	r.envoy.turn(func(e *envoy) { e.now.BoundPorts = []uint32{8080, 8443} })
	m := st.Status(t, "bound ports", func(m *discoveryv1.NodeStatus) bool { return len(m.GetBoundPorts()) == 2 })
	mounted, _ := r.identity.Roots()
	id := r.identity.Current()
	if m.GetSvidSerial() != id.Serial() || m.GetIssuerKeyId() != id.IssuerKeyID() || m.GetIssuerKeyId() == "" ||
		!m.GetSvidNotAfter().AsTime().Equal(id.NotAfter()) || !slices.Equal(m.GetMountedRoots(), mounted) || len(m.GetChecks()) != 4 {
		t.Errorf("reported %v", m)
	}
}

func TestResumeSendsWhatIsHeldAndKeepsItMeanwhile(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b := res(t, "a", "1"), res(t, "b", "1")
	st := r.establish(t, a)
	st.End(unavailable())
	r.state(t, health.Degraded, health.Disconnected)
	if code, s := readyz(t, r.client); code != http.StatusOK || s.Version != version(a) {
		t.Errorf("disconnected: %d %+v", code, s)
	}
	again := r.Next(t)
	if got := again.Subscribe; got.GetHaveVersion() != version(a) || got.GetWatermark().GetPositions()["pods"] != 1 {
		t.Fatalf("resumed with %v", got)
	}
	again.Snapshot(step(1, version(a))) // no difference
	if got := again.Answer(t); got.Version != version(a) || got.Nonce != 1 {
		t.Errorf("answered %+v", got)
	}
	r.state(t, health.Ready, "")
	again.Snapshot(step(2, version(a, b), b))
	if got := again.Answer(t); got.Version != version(a, b) {
		t.Errorf("answered %+v", got)
	}
	gone := snapshot.Snapshot{Nonce: 3, Update: resource.Update{Version: version(b), Removed: []resource.Name{a.Name}}}
	again.Snapshot(gone)
	if got := again.Answer(t); got.Version != version(b) {
		t.Errorf("answered %+v", got)
	}
}

func TestRestoredLastGoodIsServedDegradedAndListedWhenAsked(t *testing.T) {
	held := many(t, 12_000) // more than a message can list
	c := controller.New(t)
	c.Streams.Down()
	r := start(t, c, newEnvoy(held...))
	r.state(t, health.Degraded, health.Disconnected)
	if code, s := readyz(t, r.client); code != http.StatusOK || s.Version != version(held...) {
		t.Errorf("restored: %d %+v", code, s)
	}
	c.Streams.Up()
	st := r.Next(t)
	if st.Subscribe.GetHaveVersion() != version(held...) {
		t.Errorf("subscribed with %v", st.Subscribe)
	}
	refs := st.AskInventory(t)
	want := make([]snapshot.Ref, len(held))
	for i, h := range held {
		want[i] = snapshot.Ref{Name: h.Name, Hash: h.Hash}
	}
	if diff := cmp.Diff(want, refs, cmpopts.EquateComparable(snapshot.Ref{})); diff != "" {
		t.Fatal(diff)
	}
	r.state(t, health.Ready, "")
	more := res(t, "more", "1")
	st.Snapshot(step(1, version(append(held, more)...), more))
	if a := st.Answer(t); a.Version != version(append(held, more)...) {
		t.Errorf("answered %+v", a)
	}
}

func TestAVersionIsToldToBeLiveWhenItIs(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	r := start(t, controller.New(t), newEnvoy(a))
	st := r.Next(t)
	st.Snapshot(step(1, version(a))) // nothing has changed since the proxy's last run
	if v := controller.Wait(t, "the restored version", r.live); v != version(a) {
		t.Errorf("live is %s", v)
	}
	st.Answer(t)
	r.envoy.turn(func(e *envoy) { e.away, e.says = true, resource.Outcome{Pending: []resource.Name{b.Name}} })
	st.Snapshot(step(2, version(a, b), b))
	if got := st.Answer(t); got.Version != version(a, b) || len(got.Pending) != 1 {
		t.Errorf("without an Envoy: answered %+v", got)
	}
	select {
	case v := <-r.live:
		t.Errorf("%s is told to be live without an Envoy", v)
	default:
	}
	r.envoy.turn(func(e *envoy) { e.now.Version, e.now.Outcome = version(a, b), resource.Outcome{} })
	if v := controller.Wait(t, "the newest version", r.live); v != version(a, b) {
		t.Errorf("live is %s", v)
	}
	if got := st.Answer(t); got.Version != version(a, b) || len(got.Pending) != 0 {
		t.Errorf("with an Envoy: answered %+v", got)
	}
}

// What does not verify is not shown to Envoy, and is asked for anew.
func TestSnapshotsThatDoNotVerifyAreRefused(t *testing.T) {
	a, b := res(t, "a", "1"), res(t, "b", "1")
	cases := map[string]struct {
		send func(*controller.Stream)
		have string // of the Subscribe that follows
	}{
		"a version that the content does not give": {func(st *controller.Stream) { st.Snapshot(step(2, version(b), b)) }, ""},
		"a payload that does not have its hash": {func(st *controller.Stream) {
			st.Send(raw(&discoveryv1.Snapshot{Version: version(a, b), Nonce: 2, Last: true, Resources: []*discoveryv1.Resource{
				{TypeUrl: b.TypeURL, Name: b.Name.Name, Hash: b.Hash[:], Payload: []byte("something else")},
			}}))
		}, version(a)},
		"a second snapshot before the answer to the first": {func(st *controller.Stream) {
			for nonce := range uint64(5) {
				st.Snapshot(step(2+nonce, version(a)))
			}
		}, version(a)},
		"a nonce that was there before": {func(st *controller.Stream) { st.Snapshot(step(1, version(a, b), b)) }, version(a)},
		"a message of no kind":          {func(st *controller.Stream) { st.Send(&discoveryv1.ServerMessage{}) }, version(a)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := start(t, controller.New(t), newEnvoy())
			st := r.establish(t, a)
			if name == "a second snapshot before the answer to the first" {
				gate := make(chan struct{})
				r.envoy.turn(func(e *envoy) { e.gate = gate })
				defer close(gate)
			}
			tc.send(st)
			controller.Wait(t, "end of the stream", st.Gone)
			again := r.Next(t)
			if again.Subscribe.GetHaveVersion() != tc.have {
				t.Errorf("resumed with %v", again.Subscribe)
			}
			if len(r.envoy.applied) != 0 {
				t.Errorf("applied %+v", <-r.envoy.applied)
			}
		})
	}
}

func TestAfterAWrongVersionEverythingIsReplaced(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b := res(t, "a", "1"), res(t, "b", "1")
	st := r.establish(t, a)
	st.Snapshot(step(2, "wrong", b))
	again := r.Next(t)
	// The controller thinks that nothing is held and need not say that this is everything.
	again.Snapshot(step(1, version(b), b))
	if got := again.Answer(t); got.Version != version(b) {
		t.Errorf("answered %+v", got)
	}
	if held := r.envoy.Held(); held.Version != version(b) || len(held.Resources) != 1 {
		t.Errorf("held is %+v", held)
	}
}

// watch is another part, which has one check.
type watch struct {
	check atomic.Pointer[fleet.Check]
	pulse chan struct{}
}

func (w *watch) Checks() []fleet.Check {
	if c := w.check.Load(); c != nil {
		return []fleet.Check{*c}
	}
	return nil
}

func (w *watch) Observe() <-chan struct{} { return w.pulse }

func TestChecksOfOtherPartsAreToldAndChangeNoState(t *testing.T) {
	w := &watch{pulse: make(chan struct{}, 1)}
	r := start(t, controller.New(t), newEnvoy(), func(c *client.Config) { c.Watch = w })
	st := r.Next(t)
	st.Snapshot(whole(1, res(t, "a", "1")))
	st.Answer(t)
	r.state(t, health.Ready, "")
	since := time.Unix(1000, 0).UTC()
	w.check.Store(&fleet.Check{Name: "other", State: health.Failed, Reason: "why", Since: since})
	w.pulse <- struct{}{}
	st.Status(t, "the other's check", func(m *discoveryv1.NodeStatus) bool {
		return slices.ContainsFunc(m.GetChecks(), func(c *discoveryv1.Check) bool {
			return c.GetName() == "other" && c.GetState() == health.Failed && c.GetReason() == "why" && c.GetSince().AsTime().Equal(since)
		})
	})
	if code, s := readyz(t, r.client); code != http.StatusOK || s.State != health.Ready || len(s.Checks) != 5 {
		t.Errorf("/readyz: %d, %+v", code, s)
	}
}

func TestRefusalsAreNamedRepeatedAndSupersede(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	good, bad := res(t, "good", "1"), res(t, "bad", "1")
	refusal := resource.Refusal{Name: bad.Name, Hash: bad.Hash, Detail: strings.Repeat("no \xff", 1<<20)}
	r.envoy.turn(func(e *envoy) { e.says.Refused = []resource.Refusal{refusal} })
	st := r.Next(t)
	st.Snapshot(whole(1, good, bad))
	a := st.Answer(t)
	if len(a.Refused) != 1 || a.Refused[0].Name != bad.Name || a.Version != version(good, bad) || !strings.HasPrefix(a.Refused[0].Detail, "no no") {
		t.Errorf("answered %+v", a)
	}
	r.state(t, health.Ready, "") // a first snapshot with refusals still makes Ready
	st.Status(t, "a failed check", func(m *discoveryv1.NodeStatus) bool {
		return slices.ContainsFunc(m.GetChecks(), func(c *discoveryv1.Check) bool {
			return c.GetName() == health.CheckConfiguration && c.GetState() == health.Failed
		})
	})
	st.End(unavailable())
	again := r.Next(t)
	refused := again.Subscribe.GetRefused()
	if len(refused) != 1 || refused[0].GetName() != "bad" || string(refused[0].GetHash()) != string(bad.Hash[:]) || again.Subscribe.GetHaveVersion() != version(good, bad) {
		t.Errorf("resumed with %v", again.Subscribe)
	}
	mended := res(t, "bad", "2")
	r.envoy.turn(func(e *envoy) { e.says.Refused = nil })
	again.Snapshot(step(1, version(good, mended), mended))
	if a := again.Answer(t); len(a.Refused) != 0 || a.Version != version(good, mended) {
		t.Errorf("answered %+v", a)
	}
}

func TestWhatBecomesKnownLaterIsAnsweredAgain(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b := res(t, "a", "1"), res(t, "b", "1")
	r.envoy.turn(func(e *envoy) { e.says.Pending = []resource.Name{a.Name, b.Name} })
	st := r.Next(t)
	st.Snapshot(whole(7, a, b))
	if got := st.Answer(t); len(got.Pending) != 2 || got.Nonce != 7 {
		t.Errorf("answered %+v", got)
	}
	r.envoy.turn(func(e *envoy) { e.now.Outcome = resource.Outcome{Pending: []resource.Name{b.Name}} })
	if got := st.Answer(t); len(got.Pending) != 1 || got.Nonce != 7 || got.Version != version(a, b) {
		t.Errorf("answered %+v", got)
	}
	r.envoy.turn(func(e *envoy) { // Envoy restarts and refuses now
		e.now.Outcome = resource.Outcome{Refused: []resource.Refusal{{Name: b.Name, Hash: b.Hash, Detail: "no"}}}
	})
	if got := st.Answer(t); len(got.Pending) != 0 || len(got.Refused) != 1 || got.Nonce != 7 {
		t.Errorf("answered %+v", got)
	}
	r.envoy.turn(func(e *envoy) { e.now.Outcome = resource.Outcome{} })
	if got := st.Answer(t); len(got.Pending)+len(got.Refused) != 0 || got.Nonce != 7 {
		t.Errorf("answered %+v", got)
	}
}

func TestAnEnvoyThatIsGoneIsSaid(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	r.establish(t, res(t, "a", "1"))
	r.envoy.turn(func(e *envoy) { e.now.EnvoyConnected, e.now.Configured = false, false })
	r.state(t, health.NotReady, health.EnvoyDisconnected)
	r.envoy.turn(func(e *envoy) { e.now.EnvoyConnected = true }) // another one, which has nothing yet
	r.state(t, health.NotReady, health.AwaitingSnapshot)
	r.envoy.turn(func(e *envoy) { e.now.Configured = true })
	r.state(t, health.Ready, "")
}

// While Envoy has not answered, streams come and go; nothing is applied on a wrong base.
func TestAStreamThatEndsWhileEnvoyThinks(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b, c := res(t, "a", "1"), res(t, "b", "1"), res(t, "c", "1")
	st := r.establish(t, a)
	gate := make(chan struct{})
	r.envoy.turn(func(e *envoy) { e.gate = gate })
	st.Snapshot(step(2, version(a, b), b))
	st.End(unavailable())
	again := r.Next(t)
	have := again.Subscribe.GetHaveVersion() // either, as the snapshot may have been lost with the stream
	if have == version(a) {
		again.Snapshot(step(1, version(a, c), c))
	} else {
		again.Snapshot(snapshot.Snapshot{Nonce: 1, Update: resource.Update{
			Version: version(a, c), Changed: []*resource.Resource{c}, Removed: []resource.Name{b.Name},
		}})
	}
	close(gate)
	if got := again.Answer(t); got.Version != version(a, c) || got.Nonce != 1 {
		t.Errorf("had %s, answered %+v", have, got)
	}
}

func TestAnApplierThatFailsIsSubscribedForAgain(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	a, b := res(t, "a", "1"), res(t, "b", "1")
	st := r.establish(t, a)
	r.envoy.turn(func(e *envoy) { e.broken = errors.New("disk full") })
	st.Snapshot(step(2, version(a, b), b))
	controller.Wait(t, "end of the stream", st.Gone)
	r.envoy.turn(func(e *envoy) { e.broken = nil })
	again := r.Next(t)
	if again.Subscribe.GetHaveVersion() != version(a) {
		t.Errorf("resumed with %v", again.Subscribe)
	}
}

func TestAControllerThatStaysSilentIsLeft(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy(), func(c *client.Config) { c.FirstWord = 500 * time.Millisecond })
	st := r.Next(t)
	controller.Wait(t, "end of the silent stream", st.Gone)
	r.establish(t, res(t, "a", "1"))
}

func TestMetrics(t *testing.T) {
	r := start(t, controller.New(t), newEnvoy())
	st := r.establish(t, res(t, "a", "1"))
	st.End(unavailable())
	r.establish(t, res(t, "a", "1"))
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	if age := got["coxswain_discovery_client_last_snapshot_age_seconds"]; age < 0 || age > 60 {
		t.Errorf("age %f", age)
	}
	delete(got, "coxswain_discovery_client_last_snapshot_age_seconds")
	delete(got, "coxswain_discovery_client_svid_remaining_seconds")
	want := map[string]float64{
		"coxswain_discovery_client_state NotReady":   0,
		"coxswain_discovery_client_state Ready":      1,
		"coxswain_discovery_client_state Degraded":   0,
		"coxswain_discovery_client_reconnects_total": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
