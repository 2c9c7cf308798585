// Package seed makes the default MeshConfig of the release namespace once, for installations
// by tools that only render templates: those can neither see what is there nor leave it alone.
// That it was made is remembered in a ConfigMap, so what somebody deletes stays deleted. It
// changes no object that is there, and makes no other.
package seed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
)

const (
	fieldManager   = "aether-controller"
	managedByLabel = "app.kubernetes.io/managed-by"
	callTimeout    = 10 * time.Second
	firstRetry     = time.Second // after a try that failed, doubled with each that follows
	lastRetry      = 10 * time.Second
)

// Key is what the ConfigMap has when there is nothing to be done any more.
const Key = configv1.KindMeshConfig + "." + configv1.MeshConfigName

// What it has there, for people.
const (
	Made  = "made"  // by us
	Found = "found" // somebody else had made it
)

// Name is the ConfigMap of a release.
func Name(release string) string { return release + "-seeded" }

// Config is what a Seeder is made from.
type Config struct {
	// Client is required; its rights: create on MeshConfigs of the namespace; get, create and
	// patch on the ConfigMap.
	Client    *rest.Config
	Namespace string       // required: the release's
	Name      string       // required: the ConfigMap's
	Log       *slog.Logger // nil: none
}

// Seeder makes the default MeshConfig.
type Seeder struct {
	c       Config
	record  *configmap.Map
	objects dynamic.ResourceInterface
}

// New checks c. It does not call the API.
func New(c Config) (*Seeder, error) {
	if c.Client == nil || c.Namespace == "" || c.Name == "" {
		return nil, errors.New("seeding needs a client configuration, a namespace and a ConfigMap")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	record, err := configmap.New(configmap.Config{Client: c.Client, Namespace: c.Namespace, Name: c.Name, Log: c.Log})
	if err != nil {
		return nil, err
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	client, err := dynamic.NewForConfig(one)
	if err != nil {
		return nil, fmt.Errorf("client of MeshConfigs: %w", err)
	}
	return &Seeder{c: c, record: record, objects: client.Resource(configv1.GroupVersion().WithResource("meshconfigs")).Namespace(c.Namespace)}, nil
}

// Run tries until it is done, and returns when ctx is done. It is for the leader.
func (s *Seeder) Run(ctx context.Context) error {
	var fault run.Fault
	// Exits: it is done; ctx is done.
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		err := s.Seed(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault.Becomes(err) {
			s.c.Log.Warn("the default MeshConfig is not made yet; will retry", logkey.Error, err, logkey.Wait, wait)
		}
		if err := run.Sleep(ctx, wait/2+rand.N(wait/2)); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

// Seed tries once, and returns nil if it is done, now or before. It is remembered after it was
// done: who ends in between finds it done, unless somebody was quick to delete it.
func (s *Seeder) Seed(ctx context.Context) error {
	before, err := s.record.Load(ctx)
	if err != nil {
		return err
	}
	if before.Text[Key] != "" {
		return nil
	}
	how := Made
	_, err = s.objects.Create(ctx, s.object(), metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case apierrors.IsAlreadyExists(err):
		how = Found
	case apierrors.IsNotFound(err):
		return fmt.Errorf("make MeshConfig %s/%s: its definition is not there, or the namespace: %w", s.c.Namespace, configv1.MeshConfigName, err)
	case err != nil:
		return fmt.Errorf("make MeshConfig %s/%s: %w", s.c.Namespace, configv1.MeshConfigName, err)
	default:
		s.c.Log.Info("default MeshConfig made", logkey.Namespace, s.c.Namespace)
	}
	return s.record.Save(ctx, configmap.Content{Text: map[string]string{Key: how}})
}

// object inherits everything. It has no label by which a tool takes it for its own: what such
// a tool does not render it would remove.
func (s *Seeder) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": configv1.GroupVersion().String(), "kind": configv1.KindMeshConfig,
		"metadata": map[string]any{
			"name": configv1.MeshConfigName, "namespace": s.c.Namespace, "labels": map[string]any{managedByLabel: fieldManager},
		},
		"spec": map[string]any{},
	}}
}
