package kept_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/kept"
	"aether.io/aether/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is what is the same for controllers that come one after the other. The test holds
// mu but while it settles, or starts and stops a controller.
type cluster struct {
	mu      sync.Mutex // guards what follows, and what processes told
	content configmap.Content
	saves   int
	refuse  error
	key     []byte        // nil: there is no CA yet
	ready   chan struct{} // closed when there is; the test replaces it while nobody reads it
	unused  bool
	blind   bool // the source has not listed everything
}

func newCluster() *cluster {
	c := &cluster{key: bytes.Repeat([]byte{1}, 32), ready: make(chan struct{})}
	close(c.ready)
	c.mu.Lock()
	return c
}

func (c *cluster) Await(ctx context.Context) (configmap.Content, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.content, ctx.Err()
}

func (c *cluster) Save(_ context.Context, content configmap.Content) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		return c.refuse
	}
	c.content = content
	c.saves++
	return nil
}

// names is whose last good versions are kept.
func (c *cluster) names() string { return c.content.Text[kept.NamesKey] }

// process is a controller.
type process struct {
	*kept.Keeper
	faults []error
}

func (c *cluster) start(t *testing.T) *process {
	t.Helper()
	p := &process{}
	var err error
	p.Keeper, err = kept.New(kept.Config{
		Place: c,
		Key: func() ([]byte, error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.key == nil {
				return nil, errors.New("no CA")
			}
			return c.key, nil
		},
		Await: func(ctx context.Context) error {
			select {
			case <-c.ready:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		Used: func(keys []object.Key) map[object.Key]bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			out := map[object.Key]bool{}
			for _, k := range keys {
				out[k] = !c.unused
			}
			return out
		},
		Synced: func() bool {
			c.mu.Lock()
			defer c.mu.Unlock()
			return !c.blind
		},
		OnFault: func(err error) {
			c.mu.Lock()
			defer c.mu.Unlock()
			p.faults = append(p.faults, err)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lead has a controller lead until the returned function is called.
func (c *cluster) lead(t *testing.T, p *process) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() {
		c.mu.Unlock()
		defer c.mu.Lock()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	}
}

// settle waits until all that is to be done now was.
func (c *cluster) settle() {
	c.mu.Unlock()
	<-time.After(time.Minute)
	synctest.Wait()
	c.mu.Lock()
}

// recall is a new controller and what it recalls.
func (c *cluster) recall(t *testing.T) (p *process, got map[object.Key]object.Object, err error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	p = c.start(t)
	got, err = p.Recall(t.Context())
	return p, got, err
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7", Generation: 3}
}

func key(k object.Kind, name string) object.Key {
	return object.Key{Kind: k, Namespace: "shop", Name: name}
}

// objects is one of each kind that is kept.
func objects() map[object.Key]object.Object {
	rate := uint32(0)
	return map[object.Key]object.Object{
		key(object.Secret, "pair"): &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta("pair"), Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{"tls.crt": []byte("certificate"), "tls.key": []byte("very private")},
		},
		key(object.ConfigMap, "ca"): &corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: meta("ca"), Data: map[string]string{"ca.crt": "x"},
		},
		key(object.MeshConfig, "default"): &configv1.MeshConfig{
			TypeMeta: metav1.TypeMeta{APIVersion: "config.aether.io/v1", Kind: "MeshConfig"}, ObjectMeta: meta("default"),
			Spec: &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogSuccessSampleRate: &rate}},
		},
		key(object.GatewayParameters, "web"): &configv1.GatewayParameters{
			TypeMeta: metav1.TypeMeta{APIVersion: "config.aether.io/v1", Kind: "GatewayParameters"}, ObjectMeta: meta("web"),
		},
	}
}

func keep(p *process, all map[object.Key]object.Object) {
	for k, o := range all {
		p.Keep(k, o)
	}
}

func TestTheNextControllerKnowsWhatTheLastHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		first, got, err := c.recall(t)
		if err != nil || len(got) > 0 {
			t.Fatalf("before anything was kept: %v, %v", got, err)
		}
		stop := c.lead(t, first)
		labelled := objects()
		labelled[key(object.Secret, "pair")].SetAnnotations(map[string]string{"of-no": "use"})
		keep(first, labelled)
		c.settle()
		if c.saves == 0 || c.saves > 2 {
			t.Errorf("%d writes", c.saves)
		}
		for name, text := range c.content.Binary {
			if bytes.Contains(text, []byte("private")) || bytes.Contains(text, []byte("tls.key")) {
				t.Errorf("%s is to be read by anybody: %q", name, text)
			}
		}
		stop()

		next, got, err := c.recall(t)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(objects(), got, cmpopts.IgnoreUnexported(configv1.MeshConfigSpec{}, configv1.ProxyConfig{})); diff != "" {
			t.Errorf("(-kept +recalled):\n%s", diff)
		}
		// What is good, or gone, by now is removed when this one leads; the rest stays, used or not.
		c.unused = true
		pair := key(object.Secret, "pair")
		next.Keep(pair, got[pair])
		defer c.lead(t, next)()
		c.settle()
		if want := "Secret/shop/pair\n"; c.names() != want {
			t.Errorf("kept are %q, want %q", c.names(), want)
		}
		saves := c.saves
		next.Look()
		c.settle()
		if c.saves != saves {
			t.Error("the same was written again")
		}
		next.Keep(pair, nil)
		c.settle()
		if !c.content.IsZero() || len(next.faults) > 0 {
			t.Errorf("left is %q, told %v", c.names(), next.faults)
		}
	})
}

func TestWhatNobodyUsesIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.unused = true
		p := c.start(t)
		defer c.lead(t, p)()
		keep(p, objects())
		c.settle()
		if !c.content.IsZero() {
			t.Fatalf("kept are %q", c.names())
		}
		c.unused = false // a Gateway came that refers to it
		p.Look()
		c.settle()
		if n := strings.Count(c.names(), "\n"); n != len(objects()) {
			t.Errorf("kept are %q", c.names())
		}
	})
}

// Before everything was listed nothing seems to be used, and nothing to be bad.
func TestNothingIsForgottenBeforeEverythingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		first := c.start(t)
		stop := c.lead(t, first)
		keep(first, objects())
		c.settle()
		stop()
		before := c.names()

		c.blind, c.unused = true, true
		next := c.start(t)
		defer c.lead(t, next)()
		next.Look()
		c.settle()
		if c.names() != before {
			t.Fatalf("kept are %q", c.names())
		}
		keep(next, objects())
		c.blind = false
		next.Look()
		c.settle()
		if c.names() != before {
			t.Errorf("kept are %q", c.names())
		}
	})
}

func TestWhatIsSealedFollowsTheCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		p := c.start(t)
		stop := c.lead(t, p)
		keep(p, objects())
		c.settle()
		c.key = bytes.Repeat([]byte{2}, 32)
		p.Look()
		c.settle()
		stop()
		if _, got, err := c.recall(t); err != nil || len(got) != len(objects()) {
			t.Errorf("with the new CA %d, %v", len(got), err)
		}
		c.key = bytes.Repeat([]byte{3}, 32) // changed while no controller ran
		if _, got, err := c.recall(t); !errors.Is(err, kept.ErrSealed) || len(got) > 0 {
			t.Errorf("with another one %d, %v", len(got), err)
		}
		c.key = bytes.Repeat([]byte{2}, 32)
		for i := range c.content.Binary[kept.SealedKey] {
			damaged := slices.Clone(c.content.Binary[kept.SealedKey])
			damaged[i] ^= 1
			other := newCluster()
			other.key, other.content = c.key, configmap.Content{Binary: map[string][]byte{kept.SealedKey: damaged}}
			if _, got, err := other.recall(t); !errors.Is(err, kept.ErrSealed) || len(got) > 0 {
				t.Fatalf("with byte %d changed %d, %v", i, len(got), err)
			}
		}
		// Where there is no CA yet it is waited for.
		c.ready = make(chan struct{})
		done := make(chan int)
		last := c.start(t)
		c.mu.Unlock()
		go func() {
			got, _ := last.Recall(t.Context())
			done <- len(got)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Error("it went on without a CA")
		default:
		}
		close(c.ready)
		if n := <-done; n != len(objects()) {
			t.Errorf("then %d", n)
		}
	})
}

func TestWhatCannotBeKeptIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster()
		c.refuse = errors.New("forbidden")
		p := c.start(t)
		defer c.lead(t, p)()
		all := map[object.Key]object.Object{}
		for i := range kept.MaxObjects + 1 {
			name := fmt.Sprintf("s%04d", i)
			all[key(object.Secret, name)] = &corev1.Secret{ObjectMeta: meta(name), Data: map[string][]byte{"ca.crt": nil}}
		}
		keep(p, all)
		c.settle()
		if len(p.faults) != 1 || !strings.Contains(p.faults[0].Error(), "forbidden") {
			t.Fatalf("told %v", p.faults)
		}
		c.refuse = nil
		c.settle()
		last := fmt.Sprintf("Secret/shop/s%04d", kept.MaxObjects)
		if len(p.faults) != 2 || !strings.Contains(p.faults[1].Error(), last) {
			t.Errorf("told %v, want one that names %s", p.faults, last)
		}
		if n := strings.Count(c.names(), "\n"); n != kept.MaxObjects {
			t.Errorf("%d are kept", n)
		}
		// Large ones leave room for small ones.
		for k := range maps.Clone(all) {
			p.Keep(k, nil)
		}
		large := &corev1.Secret{ObjectMeta: meta("large"), Data: map[string][]byte{"ca.crt": make([]byte, kept.MaxBytes)}}
		p.Keep(key(object.Secret, "large"), large)
		keep(p, objects())
		c.settle()
		if n := strings.Count(c.names(), "\n"); n != len(objects()) || !strings.Contains(p.faults[len(p.faults)-1].Error(), "Secret/shop/large") {
			t.Errorf("kept are %q, told %v", c.names(), p.faults[len(p.faults)-1])
		}
		p.Keep(key(object.Secret, "large"), nil)
		c.settle()
		if p.faults[len(p.faults)-1] != nil {
			t.Errorf("told is still %v", p.faults[len(p.faults)-1])
		}
	})
}
