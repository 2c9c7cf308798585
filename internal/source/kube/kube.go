// Package kube is the Kubernetes API as a source of configuration: it watches every kind
// that Aether reads and hands out what changed, with the position up to which it has
// followed each resource. It keeps of each object only what is read. It writes nothing.
//
// A kind whose definition is missing counts as empty and is followed when it comes. One
// that goes, or an API that does not answer, leaves what was last known in effect; what
// is wrong is a Problem of each batch until it is over.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
)

// DefaultStale is how long a kind may not be heard of before that is told: the API server
// sends a bookmark about every minute.
const DefaultStale = 3 * time.Minute

// MaxNamespaces bounds the namespaces that are followed by themselves: each costs a watch of
// every kind, and a position of every kind in each message to a proxy.
const MaxNamespaces = 65

// Config is what a Source is made from.
type Config struct {
	// Client is required. Its rights: get, list and watch on every kind, in all namespaces or in
	// those that are given, and on definitions.
	Client *rest.Config
	// Namespaces are those whose objects are read, at most MaxNamespaces; each is listed and
	// watched by itself. Empty: all. Namespaces themselves are read all the same, and of
	// GatewayClasses then only Class.
	Namespaces []string
	Class      string
	// Epochs keeps the epoch of the positions that are handed out. Nil: it is 0, and that the API
	// was restored from a backup is not noticed.
	Epochs Epochs
	Stale  time.Duration // zero: DefaultStale
	// Withheld is a Secret whose content is not taken in, so that nothing that refers to it
	// can carry it to a proxy: the CA's. Zero: none.
	Withheld types.NamespacedName
	// Seen is shown each version of each object as it came, statuses and all, before what it
	// differs in is handed out. It is called by several goroutines, must not keep or change the
	// object, and must not block. Nil: nobody looks.
	Seen func(object.Key, object.Object)
	// Memory is asked before anything is followed; nil: this process begins with no past.
	Memory Memory
	Log    *slog.Logger     // nil: none
	Now    func() time.Time // nil: time.Now

	Registerer prometheus.Registerer // nil: no metrics
}

// Source follows a Kubernetes API.
type Source struct {
	config *rest.Config
	scheme *runtime.Scheme
	intake *intake
	epochs Epochs
	held   types.NamespacedName
	seen   func(object.Key, object.Object)
	past   *past
	crds   *crd.Validator
	stale  time.Duration
	log    *slog.Logger
	now    func() time.Time

	namespaces []string
	class      string
}

// New checks c. It does not call the API.
func New(c Config) (*Source, error) {
	if c.Client == nil {
		return nil, errors.New("a Kubernetes source needs a client configuration")
	}
	if len(c.Namespaces) > MaxNamespaces {
		return nil, fmt.Errorf("a Kubernetes source of %d namespaces: %d is the most", len(c.Namespaces), MaxNamespaces)
	}
	if len(c.Namespaces) > 0 && c.Class == "" {
		return nil, errors.New("a Kubernetes source of some namespaces needs the name of a GatewayClass")
	}
	if c.Stale == 0 {
		c.Stale = DefaultStale
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	scheme := newScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	crds, err := crd.Own()
	if err != nil {
		return nil, err
	}
	in := newIntake(0, c.Now)
	if c.Registerer != nil {
		if err := c.Registerer.Register(newMetrics(in)); err != nil {
			return nil, fmt.Errorf("register source metrics: %w", err)
		}
	}
	return &Source{config: c.Client, scheme: scheme, intake: in, epochs: c.Epochs, held: c.Withheld, seen: c.Seen, past: &past{memory: c.Memory}, crds: crds, stale: c.Stale, log: c.Log, now: c.Now, namespaces: c.Namespaces, class: c.Class}, nil
}

// Run follows the API until ctx is done, which is no error, and calls sink from this
// goroutine only: first with everything, when every kind that exists has been listed; from
// then on with what changed, at once if sink is idle and together with what else came
// meanwhile if not. Batches before the first whole one have problems and no changes. It
// returns early only with sink's error.
func (s *Source) Run(ctx context.Context, sink func(context.Context, source.Batch) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	if err := s.past.recall(ctx, s.intake); err != nil {
		return nil
	}
	f := &followers{source: s, running: &running, kinds: map[feed]*follower{}}
	d := &definitions{
		kinds: map[string][]kind{}, intake: s.intake, served: map[string]types.UID{}, stale: map[string]bool{},
		start: func(k kind) { f.start(ctx, k) }, stop: f.stop,
	}
	for _, k := range within(kinds(s.held, s.crds), s.namespaces, s.class) {
		if k.custom() {
			d.kinds[k.definition()] = append(d.kinds[k.definition()], k)
			continue
		}
		s.intake.expect(k.feed())
		f.start(ctx, k)
	}
	if s.epochs != nil {
		s.intake.unknownEpoch()
		running.Go(func() { s.keepEpoch(ctx) })
	}
	failed := make(chan error, 1) // the one watcher that can end by itself: by a client that cannot be made
	running.Go(func() { failed <- s.watchDefinitions(ctx, d) })

	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	// Exits: ctx is done; sink returns an error; definitions cannot be watched.
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return err
		case <-s.intake.wake:
		case <-tick.C: // positions move without a change, and silence makes no event
			s.noteSilence()
		}
		if b := s.intake.collect(); b != nil {
			if err := sink(ctx, *b); err != nil {
				return err
			}
		}
	}
}

// Freshness is how long ago the API was last heard of about each kind that is followed.
func (s *Source) Freshness() map[object.Kind]time.Duration { return s.intake.freshness() }

// noteSilence tells of kinds that have not been heard of for too long.
func (s *Source) noteSilence() {
	for k, age := range s.intake.freshness() {
		message := ""
		if age > s.stale {
			message = fmt.Sprintf("nothing was heard of it for more than %s: the watch may have stalled", s.stale)
		}
		s.intake.fault("watch of "+string(k), source.Warning, message)
	}
}

// followers are the goroutines that follow a kind each. start and stop are called by one
// goroutine at a time.
type followers struct {
	source  *Source
	running *sync.WaitGroup
	kinds   map[feed]*follower
}

// follower is one kind, or a kind in one namespace. Its mirror outlives what fills it, so that a kind that comes back
// is compared with what was last known of it.
type follower struct {
	mirror *mirror
	stop   context.CancelFunc // nil: it is not followed
	done   chan struct{}      // closed when what filled the mirror last has ended
}

func (f *followers) start(ctx context.Context, k kind) {
	one := f.kinds[k.feed()]
	if one == nil {
		one = &follower{mirror: newMirror(k, f.source.intake, f.source.seen, f.source.past), done: make(chan struct{})}
		close(one.done)
		f.kinds[k.feed()] = one
	}
	before, done := one.done, make(chan struct{})
	one.done = done
	ctx, one.stop = context.WithCancel(ctx)
	f.running.Go(func() {
		defer close(done)
		<-before // it was told to stop before this one was started
		err := f.source.follow(ctx, k, one.mirror)
		if ctx.Err() == nil {
			f.source.hear(k, err)
		}
	})
}

func (f *followers) stop(k kind) {
	if one := f.kinds[k.feed()]; one != nil && one.stop != nil {
		one.stop()
		one.stop = nil
	}
	f.source.intake.silence(k.feed())
}
