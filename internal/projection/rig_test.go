package projection_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/projection"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	release = "aether-system"
	name    = "aether-mesh-config"
)

// place is a ConfigMap in memory, as far as an engine sees it: that of an API server is in the
// tests of package configmap and in test/kubernetes.
type place struct {
	mu      sync.Mutex // guards what follows
	now     *corev1.ConfigMap
	version int
	writes  int
	refuse  error           // of the next reads and writes; nil: none
	before  func(*place)    // somebody who is first, once; called with mu held
	hold    <-chan struct{} // Replace waits for it; nil: it does not
}

func newPlace() *place { return &place{} }

func (p *place) Of(m *corev1.ConfigMap) configmap.State {
	s := configmap.State{Version: m.ResourceVersion, Text: map[string]string{}}
	for k, v := range m.Data {
		if projection.Ours(k) {
			s.Text[k] = v
		} else {
			s.Foreign += len(k) + len(v)
		}
	}
	for k := range m.BinaryData {
		if projection.Ours(k) {
			s.Amiss = append(s.Amiss, k)
		}
	}
	return s
}

func (p *place) Look(ctx context.Context) (configmap.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.refuse != nil:
		return configmap.State{}, p.refuse
	case p.now == nil:
		return configmap.State{}, ctx.Err()
	}
	return p.Of(p.now), ctx.Err()
}

func (p *place) Replace(_ context.Context, was configmap.State, text map[string]string) (configmap.State, error) {
	p.mu.Lock()
	hold := p.hold
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.before != nil {
		p.before(p)
		p.before = nil
	}
	version := ""
	if p.now != nil {
		version = p.now.ResourceVersion
	}
	switch {
	case p.refuse != nil:
		return configmap.State{}, p.refuse
	case was.Version != "" && was.Version != version:
		return configmap.State{}, fmt.Errorf("write: %w", configmap.ErrMoved)
	}
	p.writes++
	p.edit(func(m *corev1.ConfigMap) {
		maps.DeleteFunc(m.Data, func(k, _ string) bool { return projection.Ours(k) })
		maps.DeleteFunc(m.BinaryData, func(k string, _ []byte) bool { return projection.Ours(k) })
		maps.Copy(m.Data, text)
	})
	return p.Of(p.now), nil
}

// edit changes what is there, and makes it if there is nothing. The caller holds mu.
func (p *place) edit(f func(*corev1.ConfigMap)) {
	next := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: release, Name: name}}
	if p.now != nil {
		next = p.now.DeepCopy()
	}
	if next.Data == nil {
		next.Data = map[string]string{}
	}
	f(next)
	p.version++
	next.ResourceVersion = strconv.Itoa(p.version)
	p.now = next
}

// data is a copy of what is there.
func (p *place) data() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.now == nil {
		return nil
	}
	return maps.Clone(p.now.Data)
}

func (p *place) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.writes
}

func (p *place) refusing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

// replica is an engine, and who is told by it.
type replica struct {
	*testing.T
	*projection.Engine
	place *place
	mu    sync.Mutex // guards what follows
	told  []object.Key
	said  map[object.Key]projection.Told
}

func newReplica(t *testing.T, p *place) *replica {
	t.Helper()
	r := &replica{T: t, place: p, said: map[object.Key]projection.Told{}}
	var err error
	r.Engine, err = projection.New(projection.Config{
		Place: p, Namespace: release, Name: name,
		Tell: func(of projection.Told) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.told = append(r.told, of.Key)
			r.said[of.Key] = of
		},
		Forget: func(k object.Key) {
			r.mu.Lock()
			defer r.mu.Unlock()
			delete(r.said, k)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// lead has it lead until the test ends, or the returned function is called.
func (r *replica) lead() (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- r.Engine.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				r.Errorf("Run: %v", err)
			}
		})
	}
	r.Cleanup(stop)
	return stop
}

// byHand has somebody else change the ConfigMap, and the engine see it.
func (r *replica) byHand(f func(*corev1.ConfigMap)) {
	r.place.mu.Lock()
	r.place.edit(f)
	now := r.place.now
	r.place.mu.Unlock()
	r.Seen(at(), now)
}

func at() object.Key {
	return object.Key{Kind: object.ConfigMap, Namespace: release, Name: name}
}

// settle waits until all that is to be done now was.
func settle() {
	synctest.Wait()
	<-time.After(2 * time.Second)
	synctest.Wait()
}

func of(namespace string) object.Key {
	return object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: configv1.MeshConfigName}
}

// written is a MeshConfig with a rate.
func written(namespace string, generation int64, rate uint32) object.Change {
	return object.Change{Key: of(namespace), Object: &configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configv1.MeshConfigName, Generation: generation},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogSuccessSampleRate: &rate}},
	}}
}

// text is what a MeshConfig with a rate is projected as.
func text(rate int) string { return fmt.Sprintf("proxy:\n  accessLogSuccessSampleRate: %d\n", rate) }

// expect compares what is there.
func (r *replica) expect(want map[string]string) {
	r.Helper()
	if got := r.place.data(); !maps.Equal(got, want) {
		r.Errorf("the ConfigMap has %q, want %q", got, want)
	}
}

// says is reason and message of the condition of a generation, empty if none was told.
func (r *replica) says(namespace string, generation int64) string {
	r.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	told, known := r.said[of(namespace)]
	if !known || told.Generation != generation {
		return ""
	}
	c := told.Condition
	if c.Type != "Projected" || c.ObservedGeneration != generation || (c.Status == metav1.ConditionTrue) != (c.Reason == "Projected") {
		r.Errorf("the condition of %s is %+v", namespace, c)
	}
	return c.Reason + ": " + c.Message
}
