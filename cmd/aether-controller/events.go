package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/discovery/bootstrap"
	"aether.io/aether/internal/event"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

const (
	// discoveryService is what proxies connect to, in the release namespace.
	discoveryService = "coxswain-controller-discovery"

	// The reasons of Events.
	reasonRejected    = "BootstrapRejected"
	reasonQuarantined = "Quarantined"
	reasonTrustTaken  = "TrustBundleNotOurs"
)

// makeEvents has Events written to the API as this replica.
func (c *controller) makeEvents(client *rest.Config) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name of this replica: %w", err)
	}
	api, err := event.NewAPI(client, controllerName, host)
	if err != nil {
		return err
	}
	c.events, err = event.New(event.Config{Sink: api, Log: c.log, Registerer: c.metrics})
	return err
}

// warn makes an Event about an object with which something is wrong.
func (c *controller) warn(about corev1.ObjectReference, reason, note string) {
	c.events.Record(event.Event{Regarding: about, Type: corev1.EventTypeWarning, Reason: reason, Note: note})
}

// rejections tells of rejected bootstraps: the journal, and an Event about the Service that
// proxies bootstrap at.
type rejections struct {
	moments   *journal.Journal
	events    *event.Recorder // nil: no Events
	namespace string
}

// BootstrapRejected implements bootstrap.Events.
func (r rejections) BootstrapRejected(principal string, e bootstrap.Entry) {
	r.moments.Add(e.Time, journal.Problem, fmt.Sprintf("%s: %s: %s", reasonRejected, principal, e.Reason), e)
	r.events.Record(event.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: r.namespace, Name: discoveryService},
		Type:      corev1.EventTypeWarning, Reason: reasonRejected, Note: fmt.Sprintf("%s: %s", principal, e.Reason), Count: e.Count,
	})
}

// verdicts records changes, and has the leader tell objects that they are quarantined.
type verdicts struct {
	*changelog.Log
	wake chan struct{} // capacity 1: the quarantined differ

	mu          sync.Mutex // guards quarantined
	quarantined map[object.Key]string
}

func newVerdicts(l *changelog.Log) *verdicts { return &verdicts{Log: l, wake: make(chan struct{}, 1)} }

// Judged implements pipeline.Recorder.
func (v *verdicts) Judged(quarantined map[object.Key]string, refused map[resource.Name]bool) {
	v.Log.Judged(quarantined, refused)
	v.mu.Lock()
	v.quarantined = quarantined
	v.mu.Unlock()
	select {
	case v.wake <- struct{}{}:
	default: // tell has not come to the last one yet, and will see this too
	}
}

// tell makes an Event of each object that is quarantined, once for as long as it is for the
// same reason, until ctx is done. get is the object of a key as it is now; nil: it is gone.
func (v *verdicts) tell(ctx context.Context, events *event.Recorder, get func(object.Key) object.Object) error {
	told := map[object.Key]string{}
	// Exits: ctx is done.
	for {
		v.mu.Lock()
		now := v.quarantined
		v.mu.Unlock()
		for k, why := range now {
			if o := get(k); o != nil && told[k] != why {
				events.Record(event.Event{Regarding: event.Regarding(o), Type: corev1.EventTypeWarning, Reason: reasonQuarantined, Note: why})
			}
		}
		told = now // never changed any more
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-v.wake:
		}
	}
}
