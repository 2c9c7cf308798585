//go:build cluster

package proxypod_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"aether.io/aether/internal/proxypod"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/svid"
	"aether.io/aether/test/cluster/apiserver"
)

const (
	namespace = "default"
	patience  = time.Minute
)

func TestRunningPodsAreKnownAsSoonAsTheyAreOurs(t *testing.T) {
	server := apiserver.Start(t)
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods(namespace)
	create := func(name string, labels map[string]string) {
		t.Helper()
		p, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Finalizers: []string{"example.com/held"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: new(bool)},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Status.Phase = corev1.PodRunning
		if name == "starting" {
			p.Status.Phase = corev1.PodPending
		}
		if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	of := func(gateway string) map[string]string {
		return map[string]string{"proxy": "dedicated", "gateway.networking.k8s.io/gateway-name": gateway}
	}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex // guards ours
	ours := map[string]bool{"web-1": true}
	changed := make(chan struct{}, 1)
	asked, answer := make(chan struct{}), make(chan struct{}) // about gone-1
	w, err := proxypod.New(proxypod.Config{
		Client: server.Config, Namespace: namespace, Shared: "proxy=shared", Dedicated: "proxy=dedicated",
		Owned: func(ctx context.Context, p svid.Workload) error {
			if p.Pod.Name == "gone-1" {
				close(asked)
				select {
				case <-answer:
				case <-ctx.Done():
				}
				return ctx.Err()
			}
			mu.Lock()
			defer mu.Unlock()
			if !ours[p.Pod.Name] {
				return svid.ErrNotAllowed
			}
			return nil
		},
		Changed: func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, known := w.Running(scope.SharedPool()); known {
		t.Error("pods are known before they were listed")
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
		if n := w.Leaked(); n > 0 {
			t.Errorf("%d pods that are gone are kept", n)
		}
	}()
	gateway, err := scope.Gateway(namespace, "web")
	if err != nil {
		t.Fatal(err)
	}
	want := func(when string, s scope.Scope, want string) {
		t.Helper()
		deadline := time.NewTimer(patience)
		defer deadline.Stop()
		for {
			list, known := w.Running(s)
			said := map[string]bool{}
			for _, p := range list {
				said[p.Name] = p.Leaving
				if p.UID == "" || p.Since.IsZero() {
					t.Errorf("%s: %+v", when, p)
				}
			}
			if got := fmt.Sprint(said); known && got == want {
				return
			}
			select {
			case <-changed:
			case <-deadline.C:
				t.Fatalf("%s: %v %t, want %s", when, said, known, want)
			}
		}
	}

	create("shared-1", map[string]string{"proxy": "shared"})
	create("starting", map[string]string{"proxy": "shared"})
	create("other", nil)
	create("web-1", of("web"))
	create("web-2", of("web")) // somebody's who has set our labels
	create("shop-1", of("shop"))
	want("what runs", scope.SharedPool(), "map[shared-1:false]")
	want("what is ours", gateway, "map[web-1:false]")

	mu.Lock()
	ours["web-2"] = true // its Gateway was not known yet
	mu.Unlock()
	want("what is found out later", gateway, "map[web-1:false web-2:false]")
	if err := pods.Delete(t.Context(), "web-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("one is about to end", gateway, "map[web-1:true web-2:false]")
	if _, err := pods.Patch(t.Context(), "web-1", "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	want("it has ended", gateway, "map[web-2:false]")

	// One that ends while it is asked whose it is.
	create("gone-1", of("gone"))
	select {
	case <-asked:
	case <-time.After(patience):
		t.Fatal("nobody asks whose gone-1 is")
	}
	remove := `{"metadata":{"finalizers":null}}`
	if _, err := pods.Patch(t.Context(), "gone-1", "application/merge-patch+json", []byte(remove), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pods.Delete(t.Context(), "gone-1", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	for w.Stored(namespace + "/gone-1") {
		select {
		case <-changed:
		case <-deadline.C:
			t.Fatal("gone-1 is still there")
		}
	}
	close(answer)
	create("last-1", of("last"))
	mu.Lock()
	ours["last-1"] = true
	mu.Unlock()
	last, err := scope.Gateway(namespace, "last")
	if err != nil {
		t.Fatal(err)
	}
	want("who was asked about after it", last, "map[last-1:false]")
}
