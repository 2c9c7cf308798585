// Package kube keeps the CA in a Secret and publishes the trust bundle in ConfigMaps. It
// signs nothing and parses nothing: what the Secret holds is for package ca to judge.
package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/ca"
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

func newClient(c *rest.Config) (coreclient.CoreV1Interface, error) {
	if c == nil {
		return nil, errors.New("the CA needs a client configuration")
	}
	one := rest.CopyConfig(c)
	one.Timeout = callTimeout
	return coreclient.NewForConfig(one)
}
