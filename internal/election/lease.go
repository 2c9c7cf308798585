package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"aether.io/aether/internal/logkey"
	"aether.io/aether/internal/run"
)

// callTimeout bounds one request for the Lease: two fit into the time in which it must be
// renewed.
const callTimeout = 4 * time.Second

// Lease is a lock in a Lease of the API, made when it is first taken. The client's rights:
// get and update on that Lease, create on Leases of the namespace. identity is this
// replica's, and no other's, not even an earlier process's.
func Lease(client *rest.Config, namespace, name, identity string) (resourcelock.Interface, error) {
	if client == nil || namespace == "" || name == "" || identity == "" {
		return nil, errors.New("a lease needs a client configuration, a namespace, a name and an identity")
	}
	own := rest.CopyConfig(client) // its requests wait for no others
	own.Timeout, own.RateLimiter = callTimeout, nil
	leases, err := coordinationclient.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of Leases: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: name},
		Client:     leases,
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, nil
}

// lock tells once what is wrong with a lock, and not with each try.
type lock struct {
	resourcelock.Interface
	log     *slog.Logger
	onReach func(error) // nil: nobody is told

	mu    sync.Mutex // guards fault
	fault run.Fault
}

// Get implements resourcelock.Interface.
func (l *lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if !apierrors.IsNotFound(err) {
		l.note(err)
	}
	return record, raw, err
}

// Create implements resourcelock.Interface.
func (l *lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Create(ctx, r)
	l.note(err)
	return err
}

// Update implements resourcelock.Interface.
func (l *lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	err := l.Interface.Update(ctx, r)
	l.note(err)
	return err
}

func (l *lock) note(err error) {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || errors.Is(err, context.Canceled) { // another was first; we stop
		return
	}
	l.mu.Lock()
	news := l.fault.Becomes(err)
	l.mu.Unlock()
	if !news {
		return
	}
	if l.onReach != nil {
		l.onReach(err)
	}
	if err != nil {
		l.log.Warn("the lease of the leader cannot be used; will try again", logkey.Error, err)
	} else {
		l.log.Info("the lease of the leader can be used again")
	}
}
