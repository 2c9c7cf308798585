// Package kube keeps the CA in a Secret and publishes the trust bundle in ConfigMaps. It
// signs nothing and parses nothing: what the Secret holds is for package ca to judge.
package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/svid"
)

// Names that are part of the discovery channel's contract.
const (
	DefaultSecret  = "coxswain-discovery-ca"
	BundleName     = "coxswain-discovery-trust"
	BundleKey      = "ca.crt"
	fieldManager   = "aether-controller"
	callTimeout    = 10 * time.Second
	managedByLabel = "app.kubernetes.io/managed-by"
)

// ErrExternal says that the CA is somebody else's to create.
var ErrExternal = errors.New("CA Secret absent and mode=external")

// Secret is a ca.Store in one Secret, type kubernetes.io/tls or Opaque.
type Secret struct {
	secrets  coreclient.SecretInterface
	name     string
	external bool
}

// SecretConfig is what a Secret is made from.
type SecretConfig struct {
	Client    *rest.Config // required; its rights: get on the Secret and, unless External, create on Secrets of the namespace
	Namespace string       // required: the controller's
	Name      string       // required
	External  bool         // the Secret is made by others; it is never written
}

// NewSecret checks c. It does not call the API.
func NewSecret(c SecretConfig) (*Secret, error) {
	if c.Namespace == "" || c.Name == "" {
		return nil, errors.New("a CA Secret needs a namespace and a name")
	}
	client, err := newClient(c.Client)
	if err != nil {
		return nil, err
	}
	return &Secret{secrets: client.Secrets(c.Namespace), name: c.Name, external: c.External}, nil
}

// Load implements ca.Store.
func (s *Secret) Load(ctx context.Context) (ca.Material, error) {
	secret, err := s.secrets.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ca.Material{}, fmt.Errorf("Secret %s: %w", s.name, ca.ErrAbsent)
	}
	if err != nil {
		return ca.Material{}, fmt.Errorf("read CA: %w", err)
	}
	cert, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(cert) == 0 || len(key) == 0 { // never a reason to make another CA
		return ca.Material{}, fmt.Errorf("%w: Secret %s has no %s or no %s", ca.ErrMalformed, s.name, corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return ca.Material{Cert: cert, Key: key}, nil
}

// Create implements ca.Store: the API server lets exactly one of several creators win.
// ErrExternal if the CA is not ours to create.
func (s *Secret) Create(ctx context.Context, m ca.Material) error {
	if s.external {
		return ErrExternal
	}
	_, err := s.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Labels: map[string]string{managedByLabel: fieldManager}},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: m.Cert, corev1.TLSPrivateKeyKey: m.Key},
	}, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		return fmt.Errorf("Secret %s: %w", s.name, ca.ErrExists)
	case err != nil:
		return fmt.Errorf("create CA: %w", err)
	}
	return nil
}

// Bundle is a ca.Publisher that keeps a ConfigMap with the roots in every namespace that
// needs it, and puts right what others do to it.
type Bundle struct {
	client     coreclient.CoreV1Interface
	namespaces func() []string
	spent      func() []string
}

// BundleConfig is what a Bundle is made from.
type BundleConfig struct {
	Client     *rest.Config    // required; its rights: get, create, patch and delete on ConfigMaps of the namespaces
	Namespaces func() []string // required: where it is to be now
	Spent      func() []string // where it is and need not be; nil: nowhere
}

// NewBundle checks c. It does not call the API.
func NewBundle(c BundleConfig) (*Bundle, error) {
	if c.Namespaces == nil {
		return nil, errors.New("a trust bundle needs namespaces")
	}
	if c.Spent == nil {
		c.Spent = func() []string { return nil }
	}
	client, err := newClient(c.Client)
	if err != nil {
		return nil, err
	}
	return &Bundle{client: client, namespaces: c.Namespaces, spent: c.Spent}, nil
}

// Publish implements ca.Publisher. A ConfigMap that has the bundle already is only read.
// One namespace that refuses does not keep the others from having it, and one that is being
// deleted needs none.
func (b *Bundle) Publish(ctx context.Context, roots svid.Bundle) error {
	want := string(roots.PEM())
	var errs []error
	for _, ns := range slices.Compact(slices.Sorted(slices.Values(b.namespaces()))) {
		maps := b.client.ConfigMaps(ns)
		now, err := maps.Get(ctx, BundleName, metav1.GetOptions{})
		switch {
		case err == nil && now.Data[BundleKey] == want:
			continue
		case err != nil && !apierrors.IsNotFound(err):
			errs = append(errs, fmt.Errorf("read ConfigMap %s/%s: %w", ns, BundleName, err))
			continue
		}
		apply := coreac.ConfigMap(BundleName, ns).WithLabels(map[string]string{managedByLabel: fieldManager}).WithData(map[string]string{BundleKey: want})
		if _, err := maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil && !leaving(err) {
			errs = append(errs, fmt.Errorf("write ConfigMap %s/%s: %w", ns, BundleName, err))
		}
	}
	for _, ns := range b.spent() {
		if err := b.remove(ctx, ns); err != nil {
			errs = append(errs, fmt.Errorf("remove ConfigMap %s/%s: %w", ns, BundleName, err))
		}
	}
	return errors.Join(errs...)
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
	case now.Labels[managedByLabel] != fieldManager:
		return nil
	}
	err = maps.Delete(ctx, BundleName, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // it is another one now, which will be looked at
		return nil
	}
	return err
}

func newClient(c *rest.Config) (coreclient.CoreV1Interface, error) {
	if c == nil {
		return nil, errors.New("the CA needs a client configuration")
	}
	one := rest.CopyConfig(c)
	one.Timeout = callTimeout
	return coreclient.NewForConfig(one)
}
