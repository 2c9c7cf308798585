package main

import (
	"context"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/event"
	"aether.io/aether/internal/object"
)

// The reasons of Events about our own objects.
const (
	reasonInvalid = configv1.MeshConfigReasonInvalidConfig
	reasonValid   = "ValidConfig"
)

// refused has the leader tell our own objects that they are not valid, and that they are
// again.
type refused struct {
	wake chan struct{} // capacity 1: what is refused differs

	mu  sync.Mutex // guards now
	now map[object.Key]refusedObject
}

// refusedObject is an object as it is written, and why it is not in effect.
type refusedObject struct {
	about corev1.ObjectReference
	why   string
}

func newRefused() *refused {
	return &refused{wake: make(chan struct{}, 1), now: map[object.Key]refusedObject{}}
}

// observe takes changes of objects.
func (r *refused) observe(changes []object.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		if c.Key.Kind != object.MeshConfig && c.Key.Kind != object.GatewayParameters {
			continue
		}
		if c.Refused == "" {
			delete(r.now, c.Key)
		} else {
			r.now[c.Key] = refusedObject{why: c.Refused, about: corev1.ObjectReference{
				APIVersion: configv1.GroupVersion().String(), Kind: string(c.Key.Kind), Namespace: c.Key.Namespace, Name: c.Key.Name, UID: c.UID,
			}}
		}
	}
	select {
	case r.wake <- struct{}{}:
	default: // tell has not come to the last one yet, and will see this too
	}
}

// tell makes an Event of each object that is refused, once for each reason, and of each that
// is not any more and still there, until ctx is done.
func (r *refused) tell(ctx context.Context, events *event.Recorder, get func(object.Key) object.Object) error {
	told := map[object.Key]refusedObject{}
	// Exits: ctx is done.
	for {
		r.mu.Lock()
		now := maps.Clone(r.now)
		r.mu.Unlock()
		for k, one := range now {
			if told[k] != one {
				events.Record(event.Event{Regarding: one.about, Type: corev1.EventTypeWarning, Reason: reasonInvalid, Note: one.why})
			}
		}
		for k := range told {
			if _, still := now[k]; still {
				continue
			}
			if o := get(k); o != nil {
				events.Record(event.Event{Regarding: event.Regarding(o), Type: corev1.EventTypeNormal, Reason: reasonValid, Note: "it is valid again, and in effect"})
			}
		}
		told = now
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		}
	}
}
