package status_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/routing"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	routeKey   = object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "web"}
	gatewayKey = object.Key{Kind: object.Gateway, Namespace: "default", Name: "gw"}
	scopeName  = resource.Name{TypeURL: "x.ScopedRouteConfiguration", Name: "default/gw/80|*"}
	live       = fleet.Verdict{Total: 2, Live: 2}
	waiting    = fleet.Verdict{Total: 2, Live: 1}
)

// edge is what surrounds an engine: proxies as observed, and what was written.
type edge struct {
	mu      sync.Mutex
	verdict fleet.Verdict
	fail    error
	written []status.Document
	removed []object.Key
	kept    [][]object.Key // by sweep
}

func (e *edge) Verdict(scope.Scope, []resource.Name, uint32) fleet.Verdict {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.verdict
}

func (e *edge) Position(scope.Scope) uint64 { return 0 }

func (e *edge) Roll(scope.Scope, []resource.Name, uint64) []fleet.Member { return nil }

func (e *edge) Write(_ context.Context, d status.Document) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		return false, e.fail
	}
	e.written = append(e.written, d)
	return true, nil
}

func (e *edge) Remove(_ context.Context, k object.Key, _ types.UID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removed = append(e.removed, k)
	return nil
}

func (e *edge) sweep(_ context.Context, keys []object.Key) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, keys)
	return e.fail
}

func (e *edge) set(v fleet.Verdict) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.verdict = v
}

// writes is how often something was written.
func (e *edge) writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.written)
}

func (e *edge) last(t *testing.T) status.Document {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.written) == 0 {
		t.Fatal("nothing was written")
	}
	return e.written[len(e.written)-1]
}

func routeStatus(generation int64) routing.Status {
	return routing.Status{
		Key: routeKey, Generation: generation,
		Value: &gatewayv1.HTTPRouteStatus{RouteStatus: gatewayv1.RouteStatus{Parents: []gatewayv1.RouteParentStatus{{
			ParentRef:  gatewayv1.ParentReference{Name: "gw"},
			Conditions: []metav1.Condition{{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", ObservedGeneration: generation}},
		}}}},
		Live: []routing.Requirement{{Scope: scope.SharedPool(), Resources: []resource.Name{scopeName}}},
	}
}

func gatewayStatus(sections ...string) routing.Status {
	s := routing.Status{Key: gatewayKey, Generation: 1}
	v := &gatewayv1.GatewayStatus{}
	for i, section := range sections {
		v.Listeners = append(v.Listeners, gatewayv1.ListenerStatus{Name: gatewayv1.SectionName(section)})
		s.Live = append(s.Live, routing.Requirement{Scope: scope.SharedPool(), Section: section, Port: uint32(80 + i)})
	}
	s.Value = v
	return s
}

func programmed(t *testing.T, list []metav1.Condition) metav1.Condition {
	t.Helper()
	for _, c := range list {
		if c.Type == "Programmed" || c.Type == status.RouteProgrammed {
			return c
		}
	}
	t.Fatalf("no Programmed among %v", list)
	return metav1.Condition{}
}

func routeCondition(t *testing.T, d status.Document) metav1.Condition {
	t.Helper()
	return programmed(t, d.Status.(*gatewayv1.HTTPRouteStatus).Parents[0].Conditions)
}

// play runs an engine in a bubble of its own time.
func play(t *testing.T, script func(t *testing.T, e *edge, en *status.Engine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := &edge{verdict: live}
		en, err := status.New(status.Config{Observer: e, Sink: e, Sweep: e.sweep})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- en.Run(ctx) }()
		script(t, e, en)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

// lull lets the engine do what it was told.
func lull() {
	time.Sleep(status.DefaultLull)
	synctest.Wait()
}

// pass lets the bubble's time go by, and what is due then be done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWhatIsLiveIsWrittenOnceAndThenLeftAlone(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue || c.ObservedGeneration != 1 || c.LastTransitionTime.IsZero() {
			t.Fatalf("got %+v", c)
		}
		en.Pulse()
		en.Update([]routing.Status{routeStatus(1)})
		time.Sleep(time.Hour)
		lull()
		if len(e.written) != 1 {
			t.Fatalf("%d writes, want 1", len(e.written))
		}
	})
}

func TestPatienceMakesTheUsualCaseOneWrite(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.set(waiting)
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		if len(e.written) != 0 || en.Settled() {
			t.Fatalf("%d writes before proxies could answer, settled: %t", len(e.written), en.Settled())
		}
		e.set(live)
		en.Pulse()
		lull()
		if c := routeCondition(t, e.last(t)); len(e.written) != 1 || c.Status != metav1.ConditionTrue || !en.Settled() {
			t.Fatalf("%d writes, the last %+v, settled: %t", len(e.written), c, en.Settled())
		}
	})
}

// meanwhile has something happen while an engine asks what proxies run.
type meanwhile struct {
	*edge
	happens atomic.Pointer[func()] // once
}

func (m *meanwhile) Verdict(s scope.Scope, names []resource.Name, port uint32) fleet.Verdict {
	if happens := m.happens.Swap(nil); happens != nil {
		(*happens)()
	}
	return m.edge.Verdict(s, names, port)
}

// There is as much patience with what comes while something else is being told.
func TestPatienceIsNotSpentOnWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &meanwhile{edge: &edge{verdict: waiting}}
		en, err := status.New(status.Config{Observer: m, Sink: m})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- en.Run(ctx) }()
		en.Update([]routing.Status{routeStatus(1)})
		pass(status.DefaultPatience - time.Millisecond)
		update := func() { en.Update([]routing.Status{routeStatus(2)}) }
		m.happens.Store(&update)
		pass(status.DefaultPatience / 2)
		if n := m.writes(); n != 1 || m.last(t).Generation != 1 {
			t.Errorf("%d writes, want one of generation 1", n)
		}
		m.set(live)
		en.Pulse()
		lull()
		if c := routeCondition(t, m.last(t)); m.writes() != 2 || c.Status != metav1.ConditionTrue || c.ObservedGeneration != 2 {
			t.Errorf("%d writes, the last %+v", m.writes(), c)
		}
		cancel()
		<-done
	})
}

func TestProxiesThatDoNotAnswerAreToldAfterPatience(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.set(fleet.Verdict{Total: 2, Live: 1, Laggards: []fleet.Laggard{{Proxy: "slow", Reason: fleet.LagNoAck}}})
		en.Update([]routing.Status{routeStatus(1)})
		time.Sleep(2 * status.DefaultPatience)
		lull()
		c := routeCondition(t, e.last(t))
		if c.Status != metav1.ConditionFalse || c.Reason != "Pending" || !strings.Contains(c.Message, "slow (NotAcknowledged)") {
			t.Fatalf("got %+v", c)
		}
		first := c.LastTransitionTime
		e.set(live)
		en.Pulse()
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue || !c.LastTransitionTime.After(first.Add(-time.Second)) {
			t.Fatalf("got %+v", c)
		}
	})
}

// What is live is not looked at again, so it must say nothing that ends by itself: that a
// proxy was behind would stand there for good.
func TestWhatIsLiveDoesNotNameWhoIsBehind(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.set(fleet.Verdict{Total: 1, Live: 1, Laggards: []fleet.Laggard{{Proxy: "slow", Reason: fleet.LagNoAck}}})
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue || strings.Contains(c.Message, "slow") {
			t.Fatalf("got %+v", c)
		}
	})
}

func TestARefusalIsToldAtOnceWithItsReasonAndClearsWhenItEnds(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		e.set(fleet.Verdict{Total: 1, Refused: []fleet.Refused{{Proxy: "p1", Refusal: resource.Refusal{Name: scopeName, Detail: "bad regex"}}}})
		en.Refused([]resource.Name{scopeName})
		lull()
		c := routeCondition(t, e.last(t))
		if c.Status != metav1.ConditionFalse || c.Reason != status.ReasonRefused || !strings.Contains(c.Message, "p1 refused ScopedRouteConfiguration default/gw/80|*: bad regex") {
			t.Fatalf("got %+v", c)
		}
		e.set(live)
		en.Pulse()
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue {
			t.Fatalf("got %+v", c)
		}
	})
}

func TestAQuarantinedObjectSaysWhatEnvoySaid(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		en.Update([]routing.Status{routeStatus(1)})
		en.Hold(map[object.Key]string{routeKey: "bad regex"})
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, "bad regex") {
			t.Fatalf("got %+v", c)
		}
		en.Hold(nil)
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue {
			t.Fatalf("got %+v", c)
		}
	})
}

// A proxy that is away keeps serving what it had.
func TestWhatWasLiveStaysProgrammedWhileProxiesAreAway(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		e.set(fleet.Verdict{})
		en.Hold(map[object.Key]string{})
		en.Refused([]resource.Name{scopeName})
		time.Sleep(time.Minute)
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionTrue {
			t.Fatalf("got %+v", c)
		}
		en.Update([]routing.Status{routeStatus(2)}) // but a new generation has been seen nowhere
		time.Sleep(time.Minute)
		lull()
		if c := routeCondition(t, e.last(t)); c.Status != metav1.ConditionFalse || c.ObservedGeneration != 2 {
			t.Fatalf("got %+v", c)
		}
	})
}

func refused(detail string) fleet.Verdict {
	return fleet.Verdict{Total: 1, Refused: []fleet.Refused{{Proxy: "p1", Refusal: resource.Refusal{Detail: detail}}}}
}

func TestAGatewayIsProgrammedWhenEachOfItsListenersIs(t *testing.T) {
	cases := map[string]struct {
		verdict fleet.Verdict
		status  metav1.ConditionStatus
		reason  string
	}{
		"all live":                {live, metav1.ConditionTrue, "Programmed"},
		"a port is not bound":     {fleet.Verdict{Total: 1, Unbound: []fleet.Laggard{{Proxy: "p1"}}}, metav1.ConditionFalse, "Invalid"},
		"nobody is connected":     {fleet.Verdict{}, metav1.ConditionFalse, "Pending"},
		"a port is taken":         {refused("cannot bind '127.0.0.1:8080': Address already in use"), metav1.ConditionFalse, "Invalid"},
		"a port is only for root": {refused("cannot bind '127.0.0.1:80': Permission denied"), metav1.ConditionFalse, "Invalid"},
		"an address is nowhere":   {refused("cannot bind '[2001:db8::1]:80': Cannot assign requested address"), metav1.ConditionFalse, "Invalid"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, e *edge, en *status.Engine) {
				e.set(c.verdict)
				en.Update([]routing.Status{gatewayStatus("http", "https")})
				time.Sleep(time.Minute)
				lull()
				got := e.last(t).Status.(*gatewayv1.GatewayStatus)
				whole := programmed(t, got.Conditions)
				if whole.Status != c.status || whole.Reason != c.reason {
					t.Fatalf("Gateway: got %+v", whole)
				}
				listener := programmed(t, got.Listeners[1].Conditions)
				if listener.Status != c.status || whole.Reason == "Invalid" && listener.Reason != status.ReasonUnavailable {
					t.Fatalf("listener: got %+v", listener)
				}
			})
		})
	}
}

func TestAMessageIsCutToWhatAnAPIServerTakes(t *testing.T) {
	const most = 32768 // characters: metav1.Condition
	for name, c := range map[string]struct {
		detail string
		whole  bool
	}{
		"a short one":                          {"é", true},
		"as many characters, in more bytes":    {strings.Repeat("é", most-200), true},
		"too many characters":                  {strings.Repeat("é", most), false},
		"too many characters, a byte each":     {strings.Repeat("e", 2*most), false},
		"bytes that are no characters, a few":  {"\xff", false},
		"bytes that are no characters, a lot":  {strings.Repeat("\xff\xfe", most), false},
		"four bytes a character, cut anywhere": {strings.Repeat("𝄞", most+1), false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, e *edge, en *status.Engine) {
				e.set(refused(c.detail))
				en.Update([]routing.Status{routeStatus(1)})
				lull()
				got := routeCondition(t, e.last(t)).Message
				if n := utf8.RuneCountInString(got); n > most || !utf8.ValidString(got) || strings.Contains(got, c.detail) != c.whole {
					t.Errorf("%d characters, valid %v, all of it %v", n, utf8.ValidString(got), strings.Contains(got, c.detail))
				}
			})
		})
	}
}

func TestAWriteThatFailsIsTriedAgain(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.mu.Lock()
		e.fail = errors.New("conflict")
		e.mu.Unlock()
		en.Update([]routing.Status{routeStatus(1)})
		time.Sleep(10 * time.Second)
		lull()
		e.mu.Lock()
		e.fail = nil
		e.mu.Unlock()
		time.Sleep(10 * time.Second)
		lull()
		if len(e.written) != 1 {
			t.Fatalf("%d writes, want 1", len(e.written))
		}
	})
}

func TestEveryStatusIsWrittenAgainWhenAsked(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.set(live)
		en.Update([]routing.Status{routeStatus(1), gatewayStatus("http")})
		pass(time.Minute)
		lull()
		before := len(e.written)
		en.Rewrite()
		lull()
		if n := len(e.written) - before; n != 2 {
			t.Fatalf("%d were written again, want 2", n)
		}
		pass(time.Minute)
		lull()
		if n := len(e.written) - before; n != 2 {
			t.Fatalf("%d were written in the end, want 2", n)
		}
	})
}

func TestAnObjectThatIsGoneLosesItsStatus(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		en.Update([]routing.Status{{Key: routeKey}})
		lull()
		if len(e.removed) != 1 || e.removed[0] != routeKey || len(en.Documents()) != 0 {
			t.Fatalf("removed %v, left %v", e.removed, en.Documents())
		}
	})
}

func TestFilesAreReplacedAndRemoved(t *testing.T) {
	dir := t.TempDir()
	sink := status.NewFiles(dir)
	path := filepath.Join(dir, "httproute", "default", "web.yaml")
	for generation := range int64(2) {
		if _, err := sink.Write(t.Context(), status.Document{Key: routeKey, Generation: generation, Status: routeStatus(generation).Value}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), fmt.Sprintf("generation: %d", generation)) || !strings.Contains(string(text), "type: Accepted") {
			t.Fatalf("%s (%v)", text, err)
		}
	}
	for range 2 {
		if err := sink.Remove(t.Context(), routeKey, ""); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("the file is left behind (%v)", err)
	}
}

// An object's name may be 253 bytes long, a file's name only 255 with its endings.
func TestEveryNameThatAnObjectMayHaveIsAFile(t *testing.T) {
	dir := t.TempDir()
	sink := status.NewFiles(dir)
	keys := []object.Key{
		{Kind: object.HTTPRoute, Namespace: "default", Name: strings.Repeat("a", 253)},
		{Kind: object.HTTPRoute, Namespace: "default", Name: strings.Repeat("a", 252) + "b"},
		{Kind: object.HTTPRoute, Namespace: "default", Name: strings.Repeat("a", 246)},
	}
	for i, k := range keys {
		if _, err := sink.Write(t.Context(), status.Document{Key: k, Generation: 1, Status: routeStatus(1).Value}); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(filepath.Join(dir, "httproute", "default"))
		if err != nil || len(files) != i+1 {
			t.Fatalf("%d files (%v), want %d", len(files), err, i+1)
		}
	}
	if err := sink.KeepOnly(t.Context(), keys[:1]); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "httproute", "default"))
	if err != nil || len(files) != 1 || !strings.HasPrefix(files[0].Name(), "aaa") {
		t.Fatalf("left are %v (%v), want that of the first", files, err)
	}
}

// Where statuses cannot be written they can be asked for all the same.
func TestAStatusThatCannotBeWrittenIsKnown(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		e.fail = errors.New("no space left on device")
		en.Update([]routing.Status{routeStatus(1)})
		lull()
		if got := en.Documents(); len(got) != 1 || got[0].Key != routeKey {
			t.Fatalf("known are %v", got)
		}
	})
}

func TestWhatAnEarlierProcessLeftIsSweptAway(t *testing.T) {
	play(t, func(t *testing.T, e *edge, en *status.Engine) {
		for generation := range int64(3) {
			en.Update([]routing.Status{routeStatus(generation)})
			lull()
		}
		if len(e.kept) != 1 || len(e.kept[0]) != 1 || e.kept[0][0] != routeKey {
			t.Fatalf("swept %v, want once, keeping %s", e.kept, routeKey)
		}
	})
	dir := t.TempDir()
	sink := status.NewFiles(dir)
	gone := object.Key{Kind: object.HTTPRoute, Namespace: "default", Name: "gone"}
	for _, k := range []object.Key{routeKey, gone} {
		if _, err := sink.Write(t.Context(), status.Document{Key: k, Generation: 1, Status: routeStatus(1).Value}); err != nil {
			t.Fatal(err)
		}
	}
	if err := status.NewFiles(dir).KeepOnly(t.Context(), []object.Key{routeKey}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "*", "*", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "web.yaml" {
		t.Fatalf("left are %v (%v)", left, err)
	}
	if err := status.NewFiles(filepath.Join(dir, "none")).KeepOnly(t.Context(), nil); err != nil {
		t.Fatalf("of a directory that is not there: %v", err)
	}
}
