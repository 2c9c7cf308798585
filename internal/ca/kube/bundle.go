package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/svid"
)

// Bundle is a ca.Publisher that keeps a ConfigMap with the roots in every namespace that
// needs it, and puts right what others do to it.
type Bundle struct {
	client     coreclient.CoreV1Interface
	home       string
	namespaces func() []string
	spent      func() []string
	onTaken    func([]string)

	mu    sync.Mutex // guards taken
	taken []string   // as onTaken was told last
}

// BundleConfig is what a Bundle is made from.
type BundleConfig struct {
	Client     *rest.Config    // required; its rights: get, create, patch and delete on ConfigMaps of the namespaces
	Home       string          // the namespace in which a ConfigMap of the name is ours, whoever made it; empty: none
	Namespaces func() []string // required: where it is to be now
	Spent      func() []string // where it is and need not be; nil: nowhere
	// OnTaken is told in which namespaces a ConfigMap of the name is somebody else's, with
	// other roots than ours, and is left alone: sorted, and when they change only. Nil: nobody is.
	OnTaken func(namespaces []string)
}

// NewBundle checks c. It does not call the API.
func NewBundle(c BundleConfig) (*Bundle, error) {
	if c.Namespaces == nil {
		return nil, errors.New("a trust bundle needs namespaces")
	}
	if c.Spent == nil {
		c.Spent = func() []string { return nil }
	}
	if c.OnTaken == nil {
		c.OnTaken = func([]string) {}
	}
	client, err := newClient(c.Client)
	if err != nil {
		return nil, err
	}
	return &Bundle{client: client, home: c.Home, namespaces: c.Namespaces, spent: c.Spent, onTaken: c.OnTaken}, nil
}

// Publish implements ca.Publisher. A ConfigMap that has the bundle already is only read, and one
// that is somebody else's is left alone. One namespace that refuses does not keep the others from
// having it, and one that is being deleted needs none.
func (b *Bundle) Publish(ctx context.Context, roots svid.Bundle) error {
	want := string(roots.PEM())
	var errs []error
	var taken []string
	for _, ns := range slices.Compact(slices.Sorted(slices.Values(b.namespaces()))) {
		isTaken, err := b.publish(ctx, ns, want)
		if err != nil {
			errs = append(errs, err)
		}
		if isTaken {
			taken = append(taken, ns)
		}
	}
	b.tell(taken)
	for _, ns := range b.spent() {
		if err := b.remove(ctx, ns); err != nil {
			errs = append(errs, fmt.Errorf("remove ConfigMap %s/%s: %w", ns, BundleName, err))
		}
	}
	return errors.Join(errs...)
}

// publish has the bundle in one namespace, or reports that its place is taken.
func (b *Bundle) publish(ctx context.Context, ns, want string) (taken bool, err error) {
	maps := b.client.ConfigMaps(ns)
	apply := coreac.ConfigMap(BundleName, ns).WithLabels(map[string]string{managedByLabel: fieldManager}).WithData(map[string]string{BundleKey: want})
	now, err := maps.Get(ctx, BundleName, metav1.GetOptions{})
	missing := apierrors.IsNotFound(err)
	switch {
	case missing: // without force, so that one that comes meanwhile is not taken over
	case err != nil:
		return false, fmt.Errorf("read ConfigMap %s/%s: %w", ns, BundleName, err)
	case now.Data[BundleKey] == want && (isMarked(now) || !isOurs(now)):
		return false, nil
	case ns != b.home && !isOurs(now):
		return true, nil
	default:
		apply.WithUID(now.UID)
	}
	_, err = maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: !missing})
	if err != nil && !leaving(err) {
		return false, fmt.Errorf("write ConfigMap %s/%s: %w", ns, BundleName, err)
	}
	return false, nil
}

// isOurs reports whether a ConfigMap is marked as ours, or something of it is as we wrote it. Who
// overwrites its content or takes off the label does not make it theirs; who does both at once does.
func isOurs(m *corev1.ConfigMap) bool {
	return isMarked(m) || slices.ContainsFunc(m.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == fieldManager })
}

func isMarked(m *corev1.ConfigMap) bool { return m.Labels[managedByLabel] == fieldManager }

func (b *Bundle) tell(taken []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(taken, b.taken) {
		b.taken = taken
		b.onTaken(taken)
	}
}

// leaving reports whether a write was refused because its namespace goes or is gone.
func leaving(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) || apierrors.IsNotFound(err)
}

// remove deletes the bundle of a namespace if it is ours.
func (b *Bundle) remove(ctx context.Context, ns string) error {
	maps := b.client.ConfigMaps(ns)
	now, err := maps.Get(ctx, BundleName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case !isMarked(now):
		return nil
	}
	err = maps.Delete(ctx, BundleName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is another one now, which will be looked at
		return nil
	}
	return err
}
