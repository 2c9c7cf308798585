package claim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// shelf is Leases in memory, as an API server has them.
type shelf struct {
	mu      sync.Mutex // guards what follows
	there   map[string]coordinationv1.Lease
	version int
	down    bool
	unable  []string           // namespaces whose releases have no rights
	bound   map[string][]Right // all that releases of a namespace have, where it is not every one
	broken  bool               // nobody's rights are found out
	asked   int                // how often rights were asked for
}

func (s *shelf) key(l *coordinationv1.Lease) string { return l.Namespace + "/" + l.Name }

func (s *shelf) stamp(l *coordinationv1.Lease) {
	s.version++
	l.ResourceVersion = strconv.Itoa(s.version)
	s.there[s.key(l)] = *l.DeepCopy()
}

// put is what anybody does who may write Leases.
func (s *shelf) put(l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stamp(l)
}

func (s *shelf) List(_ context.Context, take func([]coordinationv1.Lease) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("no route to the API")
	}
	for _, l := range s.there {
		if _, labeled := l.Labels[Label]; !labeled {
			continue
		}
		if err := take([]coordinationv1.Lease{l}); err != nil {
			return err
		}
	}
	return nil
}

// labeled is how many Leases have the label.
func (s *shelf) labeled(t *testing.T) (n int) {
	t.Helper()
	err := s.List(t.Context(), func(page []coordinationv1.Lease) error {
		n += len(page)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (s *shelf) Create(_ context.Context, l *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.there[s.key(l)]; there {
		return apierrors.NewAlreadyExists(leases, l.Name)
	}
	made := l.DeepCopy()
	made.UID, made.CreationTimestamp = types.UID(strconv.Itoa(s.version)), metav1.NewTime(time.Now().Truncate(time.Second))
	s.stamp(made)
	return nil
}

func (s *shelf) Update(_ context.Context, l *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return errors.New("no route to the API")
	}
	if is, there := s.there[s.key(l)]; !there || is.ResourceVersion != l.ResourceVersion {
		return apierrors.NewConflict(leases, l.Name, nil)
	}
	s.stamp(l)
	return nil
}

func (s *shelf) able(_ context.Context, namespace string, right Right) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if s.broken {
		return false, errors.New("no answer in time")
	}
	if may, bound := s.bound[namespace]; bound && right != (Right{}) {
		return slices.Contains(may, right), nil
	}
	return !slices.Contains(s.unable, namespace), nil
}

// shut sets which namespaces' releases have no rights.
func (s *shelf) shut(unable ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unable = unable
}

// silence has rights not found out, or again, and returns how often they were asked for.
func (s *shelf) silence(broken bool) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
	return s.asked
}

func (s *shelf) lose(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.there, key)
}

func (s *shelf) has(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, there := s.there[key]
	return there
}

func (s *shelf) fail(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *shelf) Delete(_ context.Context, l *coordinationv1.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.there, s.key(l))
	return nil
}

// member is one replica of a release.
type member struct {
	*Claim
	stop func()
	done chan error

	mu     sync.Mutex // guards what follows
	losses []string   // what it was told
	reach  string     // why Leases cannot be used, as it was told
	runs   int        // how often what may only run while it holds has begun
	acts   bool
}

func (s *shelf) join(t *testing.T, namespace string, w Watches) *member {
	t.Helper()
	m := &member{done: make(chan error, 2)}
	var err error
	m.Claim, err = New(Config{
		Store: s, Namespace: namespace, Release: "aether", Watches: w,
		Able: s.able,
		OnReach: func(err error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.reach = text(err)
		},
		OnLoss: func(lack error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.losses = append(m.losses, text(lack))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { m.done <- m.Run(ctx) }()
	go func() {
		m.done <- m.While(ctx, func(ctx context.Context) error {
			m.act(true)
			<-ctx.Done()
			m.act(false)
			return ctx.Err()
		})
	}()
	m.stop = func() {
		cancel()
		for range 2 {
			if err := <-m.done; !errors.Is(err, context.Canceled) {
				t.Errorf("ended with %v", err)
			}
		}
	}
	synctest.Wait()
	return m
}

func (m *member) act(acts bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acts = acts
	if acts {
		m.runs++
	}
}

// began is how often it began to act.
func (m *member) began() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs
}

func play(t *testing.T, f func(t *testing.T, s *shelf)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, &shelf{there: map[string]coordinationv1.Lease{}}) })
}

// is fails unless a replica acts, and may, or neither.
func (m *member) is(t *testing.T, when string, acts bool, names ...string) {
	t.Helper()
	synctest.Wait()
	lack := m.Lacks()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acts != acts || (lack == nil) != acts {
		t.Errorf("%s: acts %t, want %t; lacks %v", when, m.acts, acts, lack)
	}
	for _, name := range names {
		if !strings.Contains(text(lack), name) {
			t.Errorf("%s: it does not name %q: %v", when, name, lack)
		}
	}
}

func TestTwoThatShareNothingBothAct(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		a := s.join(t, "team-a", Watches{Class: "a", Namespaces: []string{"team-a"}})
		b := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b"}})
		time.Sleep(10 * time.Minute)
		a.is(t, "first", true)
		b.is(t, "second", true)
		if a.began() != 1 || b.began() != 1 {
			t.Errorf("they began to act %d and %d times", a.began(), b.began())
		}
		a.stop()
		b.stop()
	})
}

func TestTheYoungerWaitsUntilTheOlderIsGone(t *testing.T) {
	for name, gone := range map[string]func(s *shelf){
		"its Lease is deleted":     func(s *shelf) { s.lose("team-a/" + Watches{Class: "coxswain"}.name()) },
		"its Lease is not renewed": func(*shelf) {},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *shelf) {
				a := s.join(t, "team-a", Watches{Class: "coxswain"})
				time.Sleep(2 * time.Second)
				b := s.join(t, "team-b", Watches{Class: "coxswain"})
				b.is(t, "there is another", false, "release aether of namespace team-a", "GatewayClass coxswain", "all namespaces", "Lease team-a/aether-release-")
				time.Sleep(time.Hour)
				a.is(t, "after an hour", true)
				b.is(t, "after an hour", false)
				b.mu.Lock()
				if len(b.losses) != 1 {
					t.Errorf("told %d times: %v", len(b.losses), b.losses)
				}
				b.mu.Unlock()
				a.stop()
				gone(s)
				time.Sleep(DefaultDuration + 2*DefaultEvery)
				b.is(t, "it is gone", true)

				// It comes back. If its Lease was there all the time it is the older still.
				kept := s.has("team-a/" + Watches{Class: "coxswain"}.name())
				a = s.join(t, "team-a", Watches{Class: "coxswain"})
				time.Sleep(DefaultEvery)
				a.is(t, "back", kept)
				b.is(t, "the other is back", !kept)
				a.stop()
				b.stop()
			})
		})
	}
}

// The last shares nothing with the first, and what it is to have nobody serves.
func TestOneThatWaitsKeepsNobodyOut(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		a := s.join(t, "a", Watches{Class: "a", Namespaces: []string{"a", "x"}})
		time.Sleep(2 * time.Second)
		b := s.join(t, "b", Watches{Class: "b", Namespaces: []string{"b", "x", "y"}})
		time.Sleep(2 * time.Second)
		c := s.join(t, "c", Watches{Class: "c", Namespaces: []string{"c", "y"}})
		time.Sleep(time.Hour)
		a.is(t, "the first", true)
		b.is(t, "it waits for the first", false, "namespace x")
		c.is(t, "the last", true)
		a.stop()
		time.Sleep(10 * time.Minute)
		b.is(t, "now it waits for the last", false, "namespace y")
		c.is(t, "the last", true)
		c.stop()
		time.Sleep(10 * time.Minute)
		b.is(t, "both are gone", true)
		b.stop()
	})
}

func TestReplicasOfAReleaseAreOne(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		one, two := s.join(t, "team-a", Watches{Class: "coxswain"}), s.join(t, "team-a", Watches{Class: "coxswain"})
		one.is(t, "first", true)
		two.is(t, "second", true)
		one.stop()
		time.Sleep(10 * time.Minute)
		two.is(t, "alone", true)
		if n := s.labeled(t); n != 1 || two.began() != 1 {
			t.Errorf("%d Leases; it began to act %d times", n, two.began())
		}
		two.stop()
	})
}

// A release whose values change has two kinds of replicas for a while.
func TestAReleaseThatIsToWatchMore(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		before := Watches{Class: "a", Namespaces: []string{"team-a", "x"}}
		old := s.join(t, "team-a", before)
		time.Sleep(2 * time.Second)
		other := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b", "y"}})
		other.is(t, "the other", true)

		fresh := s.join(t, "team-a", Watches{Class: "a", Namespaces: []string{"team-a", "x", "y"}})
		time.Sleep(time.Hour)
		fresh.is(t, "what is another's", false, "namespace y", "namespace team-b")
		old.is(t, "as it was", true)
		other.is(t, "nothing was taken from it", true)
		fresh.stop()

		fresh = s.join(t, "team-a", Watches{Class: "a", Namespaces: []string{"team-a", "x", "z"}})
		fresh.is(t, "what is nobody's", true)
		old.is(t, "until it is replaced", true)
		old.stop()
		time.Sleep(10 * time.Minute)
		fresh.is(t, "after it has replaced the other", true)
		if s.has("team-a/" + before.name()) {
			t.Error("the Lease of what it was is there")
		}
		fresh.stop()
		other.stop()
	})
}

func TestWithoutTheAPIAllStayWhatTheyAre(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		a := s.join(t, "team-a", Watches{Class: "coxswain"})
		time.Sleep(2 * time.Second)
		b := s.join(t, "team-b", Watches{Class: "coxswain"})
		s.fail(true)
		c := s.join(t, "team-c", Watches{Class: "c", Namespaces: []string{"team-c"}})
		time.Sleep(time.Hour)
		a.is(t, "it acted", true)
		b.is(t, "it waited", false, "team-a")
		c.is(t, "it was not there", false, "not known yet")
		s.fail(false)
		time.Sleep(2 * DefaultEvery)
		a.is(t, "again", true)
		b.is(t, "again", false, "team-a")
		c.is(t, "again", false, "team-a")
		if a.began() != 1 || b.began() != 0 {
			t.Errorf("they began to act %d and %d times", a.began(), b.began())
		}
		for _, m := range []*member{a, b, c} {
			m.stop()
		}
	})
}

// Leases are anybody's to write who has rights in one namespace.
func TestALeaseOfNoReleaseTakesNothing(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		s.shut("tenant")
		tenant := s.join(t, "tenant", Watches{Class: "coxswain"})
		time.Sleep(2 * time.Second)
		a := s.join(t, "team-a", Watches{Class: "coxswain"})
		time.Sleep(10 * time.Minute)
		a.is(t, "the other's Lease is older", true)
		a.stop()
		s.shut()
		b := s.join(t, "team-a", Watches{Class: "coxswain"})
		time.Sleep(2 * DefaultEvery)
		b.is(t, "it has rights", false, "namespace tenant")
		b.stop()
		tenant.stop()
	})
}

// The one before it knew that the other is gone; one that begins does not.
func TestAReplicaThatBeginsBesideALeaseThatHasEnded(t *testing.T) {
	for name, all := range map[string]bool{"the only one": false, "one of two": true} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *shelf) {
				w := Watches{Class: "coxswain"}
				a := s.join(t, "team-a", w)
				time.Sleep(2 * time.Second)
				b := s.join(t, "team-b", w)
				a.stop()
				time.Sleep(24 * time.Hour)
				b.is(t, "the other is gone", true)
				if !all {
					b.stop()
				}
				next := s.join(t, "team-b", w)
				for range 10 {
					next.is(t, "it begins", true)
					if all {
						b.is(t, "it goes on", true)
					}
					time.Sleep(DefaultEvery)
				}
				if next.began() != 1 {
					t.Errorf("it began to act %d times", next.began())
				}

				// The older comes back, and is seen to renew what it had.
				a = s.join(t, "team-a", w)
				a.is(t, "back", true)
				time.Sleep(2 * DefaultEvery)
				a.is(t, "back", true)
				next.is(t, "the older is back", false, "team-a")
				if all {
					b.stop()
				}
				a.stop()
				next.stop()
			})
		})
	}
}

// One that begins while it is marked as acting, and another does act, finds out by that one's renewing.
func TestAReplicaThatBeginsBesideOneThatActs(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		w := Watches{Class: "coxswain"}
		a := s.join(t, "team-a", w)
		time.Sleep(2 * time.Second)
		b := s.join(t, "team-b", w)
		a.stop()
		time.Sleep(10 * time.Minute)
		b.is(t, "alone", true)
		b.stop()
		a = s.join(t, "team-a", w)
		time.Sleep(time.Hour)
		b = s.join(t, "team-b", w)
		time.Sleep(2 * DefaultEvery)
		a.is(t, "the older", true)
		b.is(t, "the younger", false, "team-a")
		a.stop()
		b.stop()
	})
}

// A review that fails decides nothing, and answers are kept for a while.
func TestRightsThatAreNotFoundOutChangeNothing(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		s.shut("tenant")
		tenant := s.join(t, "tenant", Watches{Class: "coxswain"})
		time.Sleep(2 * time.Second)
		a := s.join(t, "team-a", Watches{Class: "coxswain"})
		a.is(t, "before", true)
		time.Sleep(keepNo - DefaultEvery)
		if asked := s.silence(true); asked > 4 {
			t.Errorf("rights were asked for %d times within %s", asked, keepNo)
		}
		time.Sleep(10 * time.Minute)
		a.is(t, "nobody answers", true)
		b := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b"}})
		b.is(t, "one that begins meanwhile", false, "not known yet")
		s.silence(false)
		time.Sleep(2 * DefaultEvery)
		a.is(t, "again", true)
		b.is(t, "again", false, "team-a") // whose Lease was kept all the time
		if a.began() != 1 {
			t.Errorf("it began to act %d times", a.began())
		}
		for _, m := range []*member{tenant, a, b} {
			m.stop()
		}
	})
}

// Who has rights in a release's namespace labels an older Lease that somebody renews.
func TestALeaseWhoseNameIsNotMadeOfWhatItSaysTakesNothing(t *testing.T) {
	all := Watches{Class: "coxswain"}
	for name, l := range map[string]metav1.ObjectMeta{
		"it says nothing":                   {Name: "some-app"},
		"it says nothing, named for that":   {Name: nameOf("")},
		"it says all":                       {Name: "some-app", Annotations: map[string]string{Annotation: all.encode()}},
		"it says all by another's name":     {Name: all.name(), Annotations: map[string]string{Annotation: `{"gatewayClass":"c"}`}},
		"what cannot be read":               {Name: nameOf("{"), Annotations: map[string]string{Annotation: "{"}},
		"all, and no class":                 {Name: nameOf("{}"), Annotations: map[string]string{Annotation: "{}"}},
		"not its own namespace":             {Name: Watches{Class: "c", Namespaces: []string{"team-b"}}.name(), Annotations: map[string]string{Annotation: Watches{Class: "c", Namespaces: []string{"team-b"}}.encode()}},
		"more than there can be to be said": {Name: nameOf(all.encode() + strings.Repeat(" ", maxText)), Annotations: map[string]string{Annotation: all.encode() + strings.Repeat(" ", maxText)}},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *shelf) {
				holder := "app-0"
				l.Namespace, l.CreationTimestamp = "team-a", metav1.NewTime(time.Now().Add(-time.Hour))
				app := &coordinationv1.Lease{ObjectMeta: l, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
				s.put(app)
				b := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b"}})
				b.is(t, "before", true)
				app.Labels = map[string]string{Label: "aether"}
				for range 12 { // as its election renews it
					s.put(app)
					time.Sleep(DefaultEvery)
				}
				b.is(t, "it has the label", true)
				b.stop()
			})
		})
	}
}

// What a newer release says beside what is known does not make its Lease nobody's.
func TestALeaseOfANewerReleaseCounts(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		text := `{"gatewayClass":"coxswain","selector":{}}`
		holder := "x"
		s.put(&coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: nameOf(text), Labels: map[string]string{Label: "next"}, Annotations: map[string]string{Annotation: text}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		})
		b := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b"}})
		b.is(t, "it counts", false, "release next of namespace team-a", "namespace team-b", "Lease team-a/aether-release-")
		time.Sleep(DefaultDuration + 2*DefaultEvery)
		b.is(t, "it has ended", true)
		b.stop()
	})
}

// Who has rights in a release's namespace makes a Lease there that says more than that release watches.
func TestALeaseThatSaysMoreThanItsReleaseMayTakesNothing(t *testing.T) {
	its := Watches{Class: "a", Namespaces: []string{"team-a", "x"}}
	for name, c := range map[string]struct {
		says, ours Watches
		acts       bool
	}{
		"all, and we some":                 {Watches{Class: "a"}, Watches{Class: "b", Namespaces: []string{"team-b"}}, true},
		"all, and we all":                  {Watches{Class: "a"}, Watches{Class: "b"}, true},
		"ours":                             {Watches{Class: "a", Namespaces: []string{"team-a", "team-b"}}, Watches{Class: "b", Namespaces: []string{"team-b"}}, true},
		"our class":                        {Watches{Class: "b", Namespaces: []string{"team-a"}}, Watches{Class: "b", Namespaces: []string{"team-b"}}, true},
		"what it may, and we all":          {its, Watches{Class: "b"}, false},
		"what it may, and we some of that": {its, Watches{Class: "b", Namespaces: []string{"team-b", "x"}}, false},
		"its class":                        {Watches{Class: "a", Namespaces: []string{"team-a"}}, Watches{Class: "a", Namespaces: []string{"team-b"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *shelf) {
				s.bound = map[string][]Right{"team-a": {{Namespace: "team-a"}, {Namespace: "x"}, {Class: "a"}}}
				a := s.join(t, "team-a", c.says)
				time.Sleep(2 * time.Second)
				b := s.join(t, "team-b", c.ours)
				time.Sleep(10 * time.Minute)
				b.is(t, "beside it", c.acts)
				a.stop()
				b.stop()
			})
		})
	}
}

func TestALeaseThatOthersTakeTheLabelOfIsTold(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		w := Watches{Class: "coxswain"}
		s.stamp(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: w.name()}})
		a, err := New(Config{Store: s, Namespace: "team-a", Release: "aether", Watches: w})
		if err != nil {
			t.Fatal(err)
		}
		if err := a.look(t.Context()); err == nil || !strings.Contains(err.Error(), "team-a/"+w.name()) {
			t.Errorf("%v", err)
		}
	})
}

func TestWhatEndsByItselfEndsWhile(t *testing.T) {
	play(t, func(t *testing.T, s *shelf) {
		a := s.join(t, "team-a", Watches{Class: "coxswain"})
		broken := errors.New("broken")
		if err := a.While(t.Context(), func(context.Context) error { return broken }); !errors.Is(err, broken) {
			t.Errorf("got %v", err)
		}
		a.stop()
	})
}

func TestConfigIsChecked(t *testing.T) {
	s := &shelf{}
	for i, c := range []Config{
		{Namespace: "a", Release: "b"},
		{Store: s, Release: "b"},
		{Store: s, Namespace: "a"},
		{Store: s, Namespace: "a", Release: "b", Duration: time.Second, Every: time.Second},
		{Store: s, Namespace: "a", Release: "b", Duration: time.Hour, Every: time.Second},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%d: it is taken", i)
		}
	}
}
