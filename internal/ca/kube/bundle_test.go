package kube_test

import (
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/svid"
)

// api has ConfigMaps of one name by namespace, and what was written to it.
type api struct {
	mu     sync.Mutex
	maps   map[string]*corev1.ConfigMap
	writes []string // namespace, and whether it was forced
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	ns := strings.Split(r.URL.Path, "/")[4]
	answer := any(a.maps[ns])
	switch {
	case r.Method == http.MethodPatch:
		a.writes = append(a.writes, ns+" force="+r.URL.Query().Get("force"))
		answer = &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}}
	case a.maps[ns] == nil:
		w.WriteHeader(http.StatusNotFound)
		answer = metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// A ConfigMap of the bundle's name that is not ours is left alone, and that is told once.
func TestAConfigMapOfSomebodyElseIsNotTakenOver(t *testing.T) {
	roots := svid.NewBundle(&x509.Certificate{Raw: []byte("root")})
	there := func(content string, labels map[string]string, managers ...string) *corev1.ConfigMap {
		m := &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: kube.BundleName, UID: "u", Labels: labels}, Data: map[string]string{kube.BundleKey: content},
		}
		for _, name := range managers {
			m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: name, Operation: metav1.ManagedFieldsOperationApply})
		}
		return m
	}
	marked := map[string]string{"app.kubernetes.io/managed-by": "aether-controller"}
	a := &api{maps: map[string]*corev1.ConfigMap{
		"release":   there("theirs", nil, "kubectl"), // the name is ours here
		"current":   there(string(roots.PEM()), marked, "aether-controller"),
		"edited":    there("nonsense", nil, "aether-controller", "kubectl"),
		"restored":  there("nonsense", marked, "velero"),
		"foreign":   there("theirs", nil, "kubectl"),
		"foreign-2": there("theirs", map[string]string{"app.kubernetes.io/managed-by": "argocd"}),
		"same":      there(string(roots.PEM()), nil, "kubectl"), // theirs, with our roots: nothing is wrong
	}}
	server := httptest.NewServer(a)
	defer server.Close()
	names := []string{"none", "release", "current", "edited", "restored", "foreign", "foreign-2", "same"}
	var told [][]string
	bundle, err := kube.NewBundle(kube.BundleConfig{
		Client: &rest.Config{Host: server.URL}, Home: "release", Namespaces: func() []string { return names },
		OnTaken: func(in []string) { told = append(told, in) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := bundle.Publish(t.Context(), roots); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(a.writes)
	want := []string{"edited force=true", "none force=false", "release force=true", "restored force=true"}
	if diff := cmp.Diff(want, slices.Compact(a.writes)); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	a.mu.Lock()
	delete(a.maps, "foreign")
	a.mu.Unlock()
	if err := bundle.Publish(t.Context(), roots); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]string{{"foreign", "foreign-2"}, {"foreign-2"}}, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
