// Package configmap is one ConfigMap in which a controller on Kubernetes leaves something to
// the next one. What that is, is for whoever saves it; who may save is for the caller: of
// several replicas the leader.
package configmap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/logkey"
)

const (
	fieldManager   = "aether-controller"
	managedByLabel = "app.kubernetes.io/managed-by"
	callTimeout    = 10 * time.Second
	firstRetry     = 250 * time.Millisecond // of Await, doubled with each failure
	lastRetry      = 10 * time.Second       // up to this
)

// MaxContent is how much a Content may hold, in bytes of its values and keys: an API server takes 1 MiB.
const MaxContent = 1<<20 - 16<<10

// Content is what is in a ConfigMap. The zero Content is that of none.
type Content struct {
	Text   map[string]string
	Binary map[string][]byte
}

// IsZero reports whether there is nothing in it.
func (c Content) IsZero() bool { return len(c.Text) == 0 && len(c.Binary) == 0 }

func (c Content) size() int {
	n := 0
	for k, v := range c.Text {
		n += len(k) + len(v)
	}
	for k, v := range c.Binary {
		n += len(k) + len(v)
	}
	return n
}

// Config is what a Map is made from.
type Config struct {
	Client    *rest.Config // required; its rights: get, create, patch and delete on the ConfigMap
	Namespace string       // required
	Name      string       // required
	Log       *slog.Logger // nil: none
}

// Map is one ConfigMap. It is safe for concurrent use; of two who save at once the last wins.
type Map struct {
	maps coreclient.ConfigMapInterface
	at   string
	name string
	ns   string
	log  *slog.Logger
}

// New checks c. It does not call the API.
func New(c Config) (*Map, error) {
	if c.Client == nil || c.Namespace == "" || c.Name == "" {
		return nil, errors.New("a ConfigMap needs a client configuration, a namespace and a name")
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	one := rest.CopyConfig(c.Client)
	one.Timeout = callTimeout
	client, err := coreclient.NewForConfig(one)
	if err != nil {
		return nil, err
	}
	return &Map{maps: client.ConfigMaps(c.Namespace), at: "ConfigMap " + c.Namespace + "/" + c.Name, name: c.Name, ns: c.Namespace, log: c.Log}, nil
}

// String is where it is, for people.
func (m *Map) String() string { return m.at }

// Load returns what is there.
func (m *Map) Load(ctx context.Context) (Content, error) {
	now, err := m.maps.Get(ctx, m.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Content{}, nil
	}
	if err != nil {
		return Content{}, fmt.Errorf("read %s: %w", m.at, err)
	}
	return Content{Text: now.Data, Binary: now.BinaryData}, nil
}

// Await is Load, tried until the API answers: to go on without what is there would be to
// forget it. Its error is ctx's.
func (m *Map) Await(ctx context.Context) (Content, error) {
	// Exits: the API answers; ctx is done.
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		c, err := m.Load(ctx)
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return Content{}, ctx.Err()
		}
		m.log.Warn("what the last controller left cannot be read; will retry", logkey.Error, err, logkey.Wait, wait)
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-ctx.Done():
			timer.Stop()
			return Content{}, ctx.Err()
		case <-timer.C:
		}
	}
}

// Save replaces what is there; a ConfigMap of nothing is removed.
func (m *Map) Save(ctx context.Context, c Content) error {
	if c.IsZero() {
		err := m.maps.Delete(ctx, m.name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove %s: %w", m.at, err)
		}
		return nil
	}
	if n := c.size(); n > MaxContent {
		return fmt.Errorf("write %s: %d bytes are more than %d", m.at, n, MaxContent)
	}
	apply := coreac.ConfigMap(m.name, m.ns).WithLabels(map[string]string{managedByLabel: fieldManager}).WithData(c.Text).WithBinaryData(c.Binary)
	if _, err := m.maps.Apply(ctx, apply, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
		return fmt.Errorf("write %s: %w", m.at, err)
	}
	return nil
}
