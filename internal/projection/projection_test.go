package projection_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/projection"
)

func TestEveryMeshConfigHasAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe([]object.Change{written("shop", 3, 0), written(release, 1, 20)}, false)
		settle()
		if got := r.place.data(); got != nil {
			t.Fatalf("before all is known there is %q", got)
		}
		if got := r.says("shop", 3); got != "" {
			t.Errorf("before all is known it says %q", got)
		}

		r.Observe([]object.Change{
			{Key: object.Key{Kind: object.Secret, Namespace: "shop", Name: "default"}, Object: &corev1.Secret{}},
			{Key: object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "other"}, Object: &configv1.MeshConfig{}},
		}, true)
		settle()
		r.expect(map[string]string{"mesh-config.yaml": text(20), "ns.shop.yaml": text(0)})
		if r.place.count() != 1 {
			t.Errorf("%d writes, want 1", r.place.count())
		}
		if got := r.says("shop", 3); got != "Projected: key ns.shop.yaml of ConfigMap aether-system/aether-mesh-config" {
			t.Errorf("it says %q", got)
		}
		if got := r.says("shop", 2) + r.says("nowhere", 1); got != "" {
			t.Errorf("of what it does not know it says %q", got)
		}
		if want := []object.Key{of(release), of("shop")}; !slices.Equal(r.told, want) {
			t.Errorf("it told of %v, want %v", r.told, want)
		}

		// What differs in nothing that is projected is not written.
		r.Observe([]object.Change{written("shop", 4, 0)}, true)
		settle()
		if r.place.count() != 1 || !strings.HasPrefix(r.says("shop", 4), "Projected") {
			t.Errorf("%d writes; it says %q", r.place.count(), r.says("shop", 4))
		}

		r.Observe([]object.Change{{Key: of("shop")}}, true)
		settle()
		r.expect(map[string]string{"mesh-config.yaml": text(20)})
		r.Observe([]object.Change{{Key: of(release)}}, true)
		settle()
		r.expect(map[string]string{})
		if got := r.says("shop", 4); got != "" {
			t.Errorf("of what is gone it says %q", got)
		}
	})
}

func TestWithoutMeshConfigsThereIsNoConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe(nil, true)
		settle()
		if got := r.place.data(); got != nil {
			t.Errorf("there is %q", got)
		}
	})
}

func TestManyChangesAreFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe(nil, true)
		const edits = 600
		for i := range edits {
			r.Observe([]object.Change{written("shop", int64(i), uint32(i%100))}, true)
			<-time.After(10 * time.Millisecond)
		}
		settle()
		r.expect(map[string]string{"ns.shop.yaml": text((edits - 1) % 100)})
		if n := r.place.count(); n > 14 {
			t.Errorf("%d edits in 6 s were %d writes", edits, n)
		}
		if got := r.says("shop", edits-1); !strings.HasPrefix(got, "Projected") {
			t.Errorf("it says %q", got)
		}
	})
}

func TestWhatIsInvalidReplacesNothing(t *testing.T) {
	const complaint = "proxy.accessLogSuccessSampleRate: 200 is more than 100"
	const generation = 5 // of what is refused
	refused := func(instead object.Object) object.Change {
		return object.Change{Key: of("shop"), Object: instead, Refused: complaint, Generation: generation}
	}
	good := written("shop", 1, 7)
	for name, tc := range map[string]struct {
		there   map[string]string // before the controller started
		changes []object.Change
		want    map[string]string
		effect  string
	}{
		"the last good version stays": {
			changes: []object.Change{good, refused(good.Object)},
			want:    map[string]string{"ns.shop.yaml": text(7)},
			effect:  "the last good version stays in effect, under key ns.shop.yaml of ConfigMap aether-system/aether-mesh-config",
		},
		"that which an earlier controller kept is written again": {
			changes: []object.Change{refused(good.Object)},
			want:    map[string]string{"ns.shop.yaml": text(7)},
			effect:  "the last good version stays in effect, under key ns.shop.yaml of ConfigMap aether-system/aether-mesh-config",
		},
		"where nothing was good nothing is written": {
			changes: []object.Change{refused(nil)},
			effect:  "no earlier version is known: the namespace inherits",
		},
		"what only the ConfigMap knows stays there": {
			there:   map[string]string{"ns.shop.yaml": text(8)},
			changes: []object.Change{refused(nil)},
			want:    map[string]string{"ns.shop.yaml": text(8)},
			effect:  "key ns.shop.yaml of ConfigMap aether-system/aether-mesh-config stays as it was before the controller started; gateways of the namespace inherit",
		},
		"what nobody can read does not": {
			there:   map[string]string{"ns.shop.yaml": "proxy: 7"},
			changes: []object.Change{refused(nil)},
			want:    map[string]string{},
			effect:  "no earlier version is known: the namespace inherits",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, newPlace())
				if tc.there != nil {
					r.place.edit(func(m *corev1.ConfigMap) { maps.Copy(m.Data, tc.there) })
				}
				r.lead()
				last := tc.changes[len(tc.changes)-1]
				for _, c := range tc.changes {
					r.Observe([]object.Change{c}, true)
					settle()
				}
				r.expect(tc.want)
				if got, want := r.says("shop", generation), "InvalidConfig: "+complaint+"; "+tc.effect; got != want {
					t.Errorf("it says\n%s, want\n%s", got, want)
				}
				// It stays while the key is edited by hand, or the object is edited to something else
				// that is not valid, and goes with the object.
				r.byHand(func(m *corev1.ConfigMap) { m.Data["ns.shop.yaml"] = text(99) })
				r.Observe([]object.Change{last}, true)
				settle()
				if want := tc.want; want != nil {
					r.expect(want)
				} else {
					r.expect(map[string]string{})
				}
				r.Observe([]object.Change{{Key: of("shop")}}, true)
				settle()
				r.expect(map[string]string{})
			})
		})
	}
}

func TestWhatOthersDoIsPutRight(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(*replica)
		want map[string]string // beside what is to be there
	}{
		"a key is changed": {do: func(r *replica) { r.byHand(func(m *corev1.ConfigMap) { m.Data["ns.shop.yaml"] = text(99) }) }},
		"a key is removed": {do: func(r *replica) { r.byHand(func(m *corev1.ConfigMap) { delete(m.Data, "ns.shop.yaml") }) }},
		"a key is added that readers would take for a namespace's": {
			do: func(r *replica) { r.byHand(func(m *corev1.ConfigMap) { m.Data["ns.ghost.yaml"] = text(99) }) },
		},
		"a key is binary": {do: func(r *replica) {
			r.byHand(func(m *corev1.ConfigMap) {
				delete(m.Data, "ns.shop.yaml")
				m.BinaryData = map[string][]byte{"ns.shop.yaml": {0xff}}
			})
		}},
		"somebody else's key is theirs": {
			do:   func(r *replica) { r.byHand(func(m *corev1.ConfigMap) { m.Data["notes.txt"] = "mine" }) },
			want: map[string]string{"notes.txt": "mine"},
		},
		"it is deleted": {do: func(r *replica) {
			r.place.mu.Lock()
			r.place.now = nil
			r.place.mu.Unlock()
			r.Observe([]object.Change{{Key: at()}}, true)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplica(t, newPlace())
				r.lead()
				r.Observe([]object.Change{written("shop", 1, 1)}, true)
				settle()
				tc.do(r)
				settle()
				want := map[string]string{"ns.shop.yaml": text(1)}
				maps.Copy(want, tc.want)
				r.expect(want)
				// And theirs stays when ours changes.
				r.Observe([]object.Change{written("shop", 2, 2)}, true)
				settle()
				want["ns.shop.yaml"] = text(2)
				r.expect(want)
			})
		})
	}
}

// A tool that always puts back what it wants is not fought with ever more writes, and holds up
// no change.
func TestWhoInsistsIsLeftAloneEverLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe([]object.Change{written("shop", 1, 1)}, true)
		settle()
		for range 600 {
			if r.place.data()["ns.shop.yaml"] != text(99) {
				r.byHand(func(m *corev1.ConfigMap) { m.Data["ns.shop.yaml"] = text(99) })
			}
			<-time.After(time.Second)
		}
		if n := r.place.count(); n < 5 || n > 15 {
			t.Errorf("%d writes in ten minutes", n)
		}
		r.Observe([]object.Change{written("shop", 2, 2)}, true)
		settle()
		r.expect(map[string]string{"ns.shop.yaml": text(2)})
	})
}

func TestWhatCannotBeWrittenIsToldOfThoseWhomItConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe([]object.Change{written("shop", 1, 1), written("store", 1, 1)}, true)
		settle()
		r.place.refusing(errors.New("write ConfigMap: forbidden"))
		r.Observe([]object.Change{written("shop", 2, 2)}, true)
		settle()
		if got := r.says("shop", 2); got != "ApplyFailed: write ConfigMap: forbidden; will retry" {
			t.Errorf("shop says %q", got)
		}
		if got := r.says("store", 1); !strings.HasPrefix(got, "Projected: ") {
			t.Errorf("store says %q", got)
		}
		r.place.refusing(nil)
		<-time.After(10 * time.Second)
		settle()
		r.expect(map[string]string{"ns.shop.yaml": text(2), "ns.store.yaml": text(1)})
		if got := r.says("shop", 2); !strings.HasPrefix(got, "Projected: ") {
			t.Errorf("shop says %q", got)
		}

		// A controller that cannot even look.
		r.place.refusing(errors.New("read ConfigMap: forbidden"))
		next := newReplica(t, r.place)
		next.lead()
		next.Observe([]object.Change{written("shop", 2, 2)}, true)
		settle()
		if got := next.says("shop", 2); got != "ApplyFailed: read ConfigMap: forbidden; will retry" {
			t.Errorf("shop says %q", got)
		}
	})
}

func TestWhoeverIsFirstIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		r.Observe([]object.Change{written("shop", 1, 1)}, true)
		settle()
		r.place.mu.Lock()
		r.place.before = func(p *place) { p.edit(func(m *corev1.ConfigMap) { m.Data["ns.ghost.yaml"] = "x" }) }
		r.place.mu.Unlock()
		r.Observe([]object.Change{written("shop", 2, 2)}, true)
		settle()
		r.expect(map[string]string{"ns.shop.yaml": text(2)})
	})
}

// A leader whose write comes late, when another leads already, changes nothing.
func TestAWriteThatComesLateChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlace()
		old, next := newReplica(t, p), newReplica(t, p)
		stop := old.lead()
		for _, r := range []*replica{old, next} {
			r.Observe([]object.Change{written("shop", 1, 1)}, true)
		}
		settle()
		if got := next.says("shop", 1); got != "" {
			t.Errorf("one that does not lead says %q", got)
		}
		hold := make(chan struct{})
		p.mu.Lock()
		p.hold = hold
		p.mu.Unlock()
		old.Observe([]object.Change{written("shop", 2, 2)}, true)
		synctest.Wait()
		<-time.After(time.Second)
		synctest.Wait() // its write is under way
		p.mu.Lock()
		p.hold = nil
		p.mu.Unlock()
		next.lead()
		next.Observe([]object.Change{written("shop", 2, 2), written("shop", 3, 3)}, true)
		settle()
		close(hold)
		stop()
		settle()
		next.expect(map[string]string{"ns.shop.yaml": text(3)})
		if got := next.says("shop", 3); !strings.HasPrefix(got, "Projected") {
			t.Errorf("it says %q", got)
		}
		if got := old.says("shop", 2); got != "" {
			t.Errorf("one that leads no more says %q", got)
		}
	})
}

// full is a MeshConfig with all fields.
func full(namespace string) object.Change {
	yes, rate, share := true, uint32(100), 0.123456789
	return object.Change{Key: of(namespace), Object: &configv1.MeshConfig{Spec: &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{
		AccessLogsEnabled: &yes, AccessLogSuccessSampleRate: &rate, TracingEnabled: &yes, TraceSampleRate: &share, EmitStatsPod: &yes,
	}}}}
}

func TestFiveThousandNamespacesFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		const n = 5000
		var changes []object.Change
		for i := range n {
			changes = append(changes, full(fmt.Sprintf("team-%04d", i)))
		}
		r.Observe(changes, true)
		settle()
		if got := len(r.place.data()); got != n {
			t.Errorf("%d of %d have a key", got, n)
		}
		for _, c := range changes {
			if got := r.says(c.Key.Namespace, 0); !strings.HasPrefix(got, "Projected: ") {
				t.Fatalf("%s says %q", c.Key.Namespace, got)
			}
		}
	})
}

func TestThoseForWhomThereIsNoRoomAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		const n = 6000
		var changes []object.Change
		ns := func(i int) string { return fmt.Sprintf("%s-%04d", strings.Repeat("a", 58), i) }
		for i := range n {
			changes = append(changes, full(ns(i)))
		}
		changes = append(changes, full(release)) // comes after all of them by name
		r.Observe(changes, true)
		settle()
		data := r.place.data()
		fit := len(data)
		size := 0
		for k, v := range data {
			size += len(k) + len(v)
		}
		if fit < 4000 || fit >= n || size > configmap.MaxContent || data["mesh-config.yaml"] == "" {
			t.Fatalf("%d fit, %d bytes", fit, size)
		}
		for i := range n {
			there := data["ns."+ns(i)+".yaml"] != ""
			if there != (i < fit-1) {
				t.Fatalf("%d fit, and of the namespace at place %d it is %t that it has a key", fit, i, there)
			}
		}
		want := fmt.Sprintf("ApplyFailed: there is no room for key ns.%s.yaml in ConfigMap aether-system/aether-mesh-config, which takes %d of %d MeshConfigs: the release namespace's, then the others by name", ns(n-1), fit, n+1)
		if got := r.says(ns(n-1), 0); got != want {
			t.Errorf("it says\n%s, want\n%s", got, want)
		}
		// When there is room, they are in.
		var gone []object.Change
		for i := range n / 2 {
			gone = append(gone, object.Change{Key: of(ns(i))})
		}
		r.Observe(gone, true)
		settle()
		if got := r.says(ns(n-1), 0); !strings.HasPrefix(got, "Projected") || len(r.place.data()) != n/2+1 {
			t.Errorf("it says %q of %d", got, len(r.place.data()))
		}
	})
}

func TestOfAllThatOthersHaveNothingIsTaken(t *testing.T) {
	for key, want := range map[string]bool{
		projection.ReleaseKey: true, "ns.shop.yaml": true, "ns.a-b.yaml": true,
		"": false, "ns..yaml": false, "ns.yaml": false, "ns.a.b.yaml": false, "ns.shop.yml": false, "mesh-config.yml": false, "notes.txt": false, "xns.a.yaml": false,
	} {
		if got := projection.Ours(key); got != want {
			t.Errorf("%q is ours: %t", key, got)
		}
	}
}

// What is projected is read back as what it was made from, whatever is set of it.
func TestWhatIsProjectedReadsTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, newPlace())
		r.lead()
		specs := everySpec()
		var changes []object.Change
		for i, s := range specs {
			changes = append(changes, object.Change{Key: of(fmt.Sprintf("n%d", i)), Object: &configv1.MeshConfig{Spec: s}})
		}
		r.Observe(changes, true)
		settle()
		data := r.place.data()
		for i, s := range specs {
			key := fmt.Sprintf("ns.n%d.yaml", i)
			got, unknown, err := meshconfig.Parse([]byte(data[key]))
			if err != nil || len(unknown) > 0 || !object.Alike(orEmpty(s), got) {
				t.Errorf("%v was projected as %q, which reads %v, %v, %v", s, data[key], got, unknown, err)
			}
		}
	})
}

func orEmpty(s *configv1.MeshConfigSpec) *configv1.MeshConfigSpec {
	if s == nil {
		return &configv1.MeshConfigSpec{}
	}
	return s
}

// everySpec is a spec with every set of fields, each at its bounds and between.
func everySpec() []*configv1.MeshConfigSpec {
	out := []*configv1.MeshConfigSpec{nil, {}, {Proxy: &configv1.ProxyConfig{}}}
	flags := []*bool{nil, new(bool), func() *bool { b := true; return &b }()}
	rates := []*uint32{nil}
	for _, r := range []uint32{0, 1, 50, 100} {
		rates = append(rates, &r)
	}
	shares := []*float64{nil}
	for _, s := range []float64{0, 1e-9, 0.1, 1.0 / 3, 1} {
		shares = append(shares, &s)
	}
	for _, logs := range flags {
		for _, rate := range rates {
			for _, tracing := range flags {
				for _, share := range shares {
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
