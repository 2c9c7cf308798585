package kube

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source"
)

// memory is what an earlier process left, and what this one keeps.
type memory struct {
	left map[object.Key]object.Object
	err  error
	kept map[object.Key]object.Object
}

func (m *memory) Recall(context.Context) (map[object.Key]object.Object, error) { return m.left, m.err }

func (m *memory) Keep(k object.Key, o object.Object) {
	if o == nil {
		delete(m.kept, k)
		return
	}
	m.kept[k] = o
}

func remember(t *testing.T, name object.Kind, left map[object.Key]object.Object) (reader, *memory) {
	t.Helper()
	r, m := read(t, name), &memory{left: left, kept: map[object.Key]object.Object{}}
	r.past.memory = m
	if err := r.past.recall(t.Context(), r.intake); err != nil {
		t.Fatal(err)
	}
	return r, m
}

func mesh(uid types.UID, version string, rate uint32) *configv1.MeshConfig {
	return &configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default", UID: uid, ResourceVersion: version},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogSuccessSampleRate: &rate}},
	}
}

// raw is an object of ours as it comes.
func raw(t *testing.T, o object.Object) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		t.Fatal(err)
	}
	return &unstructured.Unstructured{Object: content}
}

func config(uid types.UID, version, text string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "ca", UID: uid, ResourceVersion: version},
		Data:       map[string]string{authorities: text},
	}
}

// A definition of an earlier release may have let in what is refused today.
func TestAMeshConfigThatIsRefusedDoesNotReplaceWhatIsInEffect(t *testing.T) {
	k := object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "default"}
	r, m := remember(t, object.MeshConfig, nil)
	if err := r.Replace([]any{raw(t, mesh("u", "1", 10))}, "1"); err != nil {
		t.Fatal(err)
	}
	good := r.changes(t)[0].Object
	if err := r.Update(raw(t, mesh("u", "2", 101))); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != good || got[0].Refused == "" {
		t.Fatalf("a bad one gave %+v", got)
	}
	if m.kept[k] != good {
		t.Fatalf("kept are %v", m.kept)
	}
	// The next process lists it bad.
	left := maps.Clone(m.kept)
	r, m = remember(t, object.MeshConfig, left)
	if err := r.Replace([]any{raw(t, mesh("u", "3", 101))}, "3"); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != good || got[0].Refused == "" {
		t.Fatalf("after a restart it gave %+v", got)
	}
	if m.kept[k] != good {
		t.Fatalf("kept are %v", m.kept)
	}
	if err := r.Update(raw(t, mesh("u", "4", 20))); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Refused != "" || len(m.kept) != 0 {
		t.Fatalf("a good one gave %+v, kept are %v", got, m.kept)
	}
}

func TestOnlyTheSameObjectsGoodVersionIsRecalled(t *testing.T) {
	k := object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "default"}
	for name, left := range map[string]*configv1.MeshConfig{
		"another object of the name":      mesh("v", "1", 10),
		"one that would be refused today": mesh("u", "1", 102),
	} {
		t.Run(name, func(t *testing.T) {
			r, m := remember(t, object.MeshConfig, map[object.Key]object.Object{k: left})
			if err := r.Replace([]any{raw(t, mesh("u", "3", 101))}, "3"); err != nil {
				t.Fatal(err)
			}
			if got := r.changes(t); len(got) != 1 || got[0].Object != nil || got[0].Refused == "" {
				t.Errorf("it gave %+v", got)
			}
			if len(m.kept) != 0 {
				t.Errorf("kept are %v", m.kept)
			}
		})
	}
}

func TestWhatIsDeletedIsNotKept(t *testing.T) {
	k := object.Key{Kind: object.ConfigMap, Namespace: "shop", Name: "ca"}
	good := config("u", "1", "")
	delete(good.Data, authorities)
	r, m := remember(t, object.ConfigMap, map[object.Key]object.Object{k: good})
	if err := r.Replace([]any{config("u", "2", "no certificate")}, "2"); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != good || m.kept[k] == nil {
		t.Fatalf("it gave %+v, kept are %v", got, m.kept)
	}
	if err := r.Delete(config("u", "3", "no certificate")); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != nil || len(m.kept) != 0 {
		t.Fatalf("its end gave %+v, kept are %v", got, m.kept)
	}
	// One of the name that comes later has no past.
	if err := r.Update(config("w", "4", "no certificate")); err != nil {
		t.Fatal(err)
	}
	if got := r.changes(t); len(got) != 1 || got[0].Object != nil {
		t.Errorf("another one gave %+v", got)
	}
}

func TestAPastThatCannotBeReadIsTold(t *testing.T) {
	r := read(t, object.ConfigMap)
	r.past.memory = &memory{err: errors.New("sealed")}
	if err := r.past.recall(t.Context(), r.intake); err != nil {
		t.Fatal(err)
	}
	b := r.collect()
	if b == nil || len(b.Problems) != 1 || b.Problems[0].Severity != source.Warning {
		t.Fatalf("it gave %+v", b)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.past.recall(ctx, r.intake); !errors.Is(err, context.Canceled) {
		t.Errorf("an end gave %v", err)
	}
}
