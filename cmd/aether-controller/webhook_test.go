package main

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// What reviews are judged by is the release namespace's MeshConfig, and no other.
func TestReviewsAreJudgedByWhatTheReleaseHas(t *testing.T) {
	r := releaseConfig{namespace: "aether-system"}
	in := func(namespace, name string) *configv1.MeshConfig {
		c := &configv1.MeshConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		r.observe([]object.Change{{Key: object.Key{Kind: object.MeshConfig, Namespace: namespace, Name: name}, Object: c}})
		return c
	}
	in("shop", "default")
	in("aether-system", "other")
	if got := r.get(); got != nil {
		t.Errorf("there is none, and it is %v", got)
	}
	want := in("aether-system", "default")
	if got := r.get(); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	k := object.Key{Kind: object.MeshConfig, Namespace: "aether-system", Name: "default"}
	r.observe([]object.Change{{Key: k, Object: want, Refused: "spec: no"}})
	if got := r.get(); got != want {
		t.Errorf("the next version is refused, and %v is in effect", got)
	}
	r.observe([]object.Change{{Key: k}})
	if got := r.get(); got != nil {
		t.Errorf("it is gone, and %v is in effect", got)
	}
}
