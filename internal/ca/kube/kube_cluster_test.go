//go:build cluster

package kube_test

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
	"aether.io/aether/test/cluster/apiserver"
)

const (
	namespace = "default"
	patience  = time.Minute
)

// rig is an API server and authorities on it.
type rig struct {
	*testing.T
	server *apiserver.Server
	core   coreclient.CoreV1Interface
}

func newRig(t *testing.T) rig {
	t.Helper()
	server := apiserver.Start(t)
	core, err := coreclient.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	return rig{t, server, core}
}

// authority runs a CA until the test ends.
func (r rig) authority(external bool) *ca.Authority {
	r.Helper()
	domain, err := spiffeid.ParseTrustDomain("cluster.local")
	if err != nil {
		r.Fatal(err)
	}
	store, err := kube.NewSecret(kube.SecretConfig{Client: r.server.Config, Namespace: namespace, Name: kube.DefaultSecret, External: external})
	if err != nil {
		r.Fatal(err)
	}
	bundle, err := kube.NewBundle(kube.BundleConfig{Client: r.server.Config, Namespaces: func() []string { return []string{namespace, "kube-public", namespace} }})
	if err != nil {
		r.Fatal(err)
	}
	a, err := ca.New(ca.Config{Store: store, Publisher: bundle, TrustDomain: domain, Poll: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = a.Run(ctx) }()
	r.Cleanup(func() { cancel(); <-done })
	return a
}

func (r rig) ready(a *ca.Authority) {
	r.Helper()
	select {
	case <-a.Ready():
	case <-time.After(patience):
		r.Fatalf("no CA: %v", a.Fault())
	}
}

func (r rig) bundle(in string) string {
	r.Helper()
	m, err := r.core.ConfigMaps(in).Get(r.Context(), kube.BundleName, metav1.GetOptions{})
	if err != nil {
		return err.Error()
	}
	return m.Data[kube.BundleKey]
}

// eventually looks until it is so, or fails.
func (r rig) eventually(what string, is func() bool) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			r.Fatalf("%s: not after %s", what, patience)
		case <-tick.C:
		}
	}
}

func TestOfAuthoritiesThatStartAtOnceOneMakesTheCA(t *testing.T) {
	r := newRig(t)
	var all []*ca.Authority
	var mu sync.Mutex
	var starting sync.WaitGroup
	for range 5 {
		starting.Go(func() {
			a := r.authority(false)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	starting.Wait()
	for _, a := range all {
		r.ready(a)
		if string(a.Roots().PEM()) != string(all[0].Roots().PEM()) {
			t.Error("two have different roots")
		}
	}
	want := string(all[0].Roots().PEM())
	for _, ns := range []string{namespace, "kube-public"} {
		if got := r.bundle(ns); got != want {
			t.Errorf("the bundle of %s is %q, want %q", ns, got, want)
		}
	}

	// What others do to the bundle is put right.
	if err := r.core.ConfigMaps(namespace).Delete(t.Context(), kube.BundleName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("a deleted bundle comes back", func() bool { return r.bundle(namespace) == want })
	m, err := r.core.ConfigMaps(namespace).Get(t.Context(), kube.BundleName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data[kube.BundleKey] = "nonsense"
	if _, err := r.core.ConfigMaps(namespace).Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("a bundle of nonsense is overwritten", func() bool { return r.bundle(namespace) == want })

	// A damaged Secret leaves the last good CA in use, and says so.
	secrets := r.core.Secrets(namespace)
	s, err := secrets.Get(t.Context(), kube.DefaultSecret, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Type != corev1.SecretTypeTLS {
		t.Errorf("the Secret is of type %s", s.Type)
	}
	s.Data[corev1.TLSPrivateKeyKey] = []byte("x")
	if _, err := secrets.Update(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.eventually("the damage is told", func() bool { return all[0].Fault() != nil })
	if got := string(all[0].Roots().PEM()); got != want {
		t.Error("the roots changed with the damage")
	}
}

func TestAnExternalCAIsNeverMade(t *testing.T) {
	r := newRig(t)
	a := r.authority(true)
	r.eventually("its absence is told", func() bool { return errors.Is(a.Fault(), kube.ErrExternal) })
	if _, err := r.core.Secrets(namespace).Get(t.Context(), kube.DefaultSecret, metav1.GetOptions{}); err == nil {
		t.Fatal("a CA was made")
	}
	other := r.authority(false) // stands for whoever makes it
	r.ready(other)
	r.ready(a)
	if string(a.Roots().PEM()) != string(other.Roots().PEM()) {
		t.Error("it does not use what was made")
	}
}

// Who made a ConfigMap is what the API server has on record, whatever became of it since.
func TestATrustBundleIsPutRightWhereItIsOursAndNowhereElse(t *testing.T) {
	r := newRig(t)
	if _, err := r.server.Kubectl(t.Context(), "", "-n", "kube-system", "create", "configmap", kube.BundleName, "--from-literal=ca.crt=theirs"); err != nil {
		t.Fatal(err)
	}
	bundle, err := kube.NewBundle(kube.BundleConfig{Client: r.server.Config, Namespaces: func() []string { return []string{"kube-public", "kube-system"} }})
	if err != nil {
		t.Fatal(err)
	}
	roots := svid.NewBundle(&x509.Certificate{Raw: []byte("root")})
	publish := func() {
		t.Helper()
		if err := bundle.Publish(t.Context(), roots); err != nil {
			t.Fatal(err)
		}
	}
	content := func(ns string) string {
		t.Helper()
		m, err := r.core.ConfigMaps(ns).Get(t.Context(), kube.BundleName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return m.Data[kube.BundleKey]
	}
	publish()
	for _, edit := range []string{`{"data":{"ca.crt":"nonsense"}}`, `{"data":null}`, `{"metadata":{"labels":null}}`, `{"data":{"ca.crt":"nonsense"}}`} {
		if _, err := r.server.Kubectl(t.Context(), "", "-n", "kube-public", "patch", "configmap", kube.BundleName, "--type=merge", "-p", edit); err != nil {
			t.Fatal(err)
		}
		publish()
		if got := content("kube-public"); got != string(roots.PEM()) {
			t.Errorf("after %s ours is %q", edit, got)
		}
	}
	if got := content("kube-system"); got != "theirs" {
		t.Errorf("theirs became %q", got)
	}
}
