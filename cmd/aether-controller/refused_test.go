package main

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/event"
	"aether.io/aether/internal/object"
)

// written takes Events as they are written.
type written chan event.Written

func (w written) Create(ctx context.Context, e event.Written) error {
	select {
	case w <- e:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w written) Repeat(ctx context.Context, e event.Written) (bool, error) {
	return true, w.Create(ctx, e)
}

func TestAnObjectThatIsNotValidIsToldSoAndThatItIsAgain(t *testing.T) {
	sink := make(written)
	events, err := event.New(event.Config{Sink: sink})
	if err != nil {
		t.Fatal(err)
	}
	k := object.Key{Kind: object.MeshConfig, Namespace: "shop", Name: "default"}
	good := &configv1.MeshConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion().String(), Kind: configv1.KindMeshConfig},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default", UID: "u"},
	}
	r := newRefused()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- events.Run(ctx) }()
	go func() { done <- r.tell(ctx, events, func(object.Key) object.Object { return good }) }()
	defer func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	}()
	want := func(reason, note string) {
		t.Helper()
		select {
		case e := <-sink:
			if e.Reason != reason || e.Note != note || e.Regarding.Name != "default" || e.Regarding.Namespace != "shop" || e.Regarding.UID != "u" || e.Regarding.Kind != "MeshConfig" {
				t.Errorf("Event %+v, want %s: %s", e, reason, note)
			}
		case <-time.After(time.Minute):
			t.Fatalf("no Event %s", reason)
		}
	}
	bad := object.Change{Key: k, Object: good, Refused: "spec.proxy.traceSampleRate: no", Generation: 2, UID: "u"}
	r.observe([]object.Change{bad})
	want("InvalidConfig", bad.Refused)
	r.observe([]object.Change{bad}) // no news
	bad.Refused = "spec.proxy: no"
	r.observe([]object.Change{bad})
	want("InvalidConfig", bad.Refused)
	r.observe([]object.Change{{Key: k, Object: good}})
	want("ValidConfig", "it is valid again, and in effect")
	// Others than our own objects have nothing told of them; the same again would be a count.
	bad.Refused = "spec: no"
	r.observe([]object.Change{{Key: object.Key{Kind: object.Secret, Namespace: "shop", Name: "default"}, Refused: "no"}, bad})
	want("InvalidConfig", bad.Refused)
}
