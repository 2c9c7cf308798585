package election_test

import (
	"context"
	"errors"
	"strconv"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// lease is the record that several stand for, as an API server keeps it. It passes the
// tests that a real one does.
type lease struct {
	mu      sync.Mutex
	record  *resourcelock.LeaderElectionRecord
	version int
	down    bool
}

func (l *lease) set(down bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down = down
}

func (l *lease) holder() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.record == nil {
		return ""
	}
	return l.record.HolderIdentity
}

// standing is the lease as one replica uses it.
type standing struct {
	*lease
	identity string
	seen     int
}

var (
	errDown  = errors.New("connection refused")
	resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
)

func (s *standing) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return nil, nil, errDown
	case s.record == nil:
		return nil, nil, apierrors.NewNotFound(resource, "aether-controller")
	}
	s.seen = s.version
	copied := *s.record
	return &copied, []byte(copied.HolderIdentity + strconv.Itoa(s.version)), nil
}

func (s *standing) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	s.mu.Lock()
	exists := s.record != nil
	s.mu.Unlock()
	if exists {
		return apierrors.NewAlreadyExists(resource, "aether-controller")
	}
	return s.write(ctx, r)
}

func (s *standing) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return s.write(ctx, r)
}

func (s *standing) write(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return errDown
	case s.seen != s.version:
		return apierrors.NewConflict(resource, "aether-controller", errors.New("changed meanwhile"))
	}
	s.version++
	s.seen, s.record = s.version, &r
	return nil
}

func (s *standing) RecordEvent(string) {}

func (s *standing) Identity() string { return s.identity }

func (s *standing) Describe() string { return "memory" }
