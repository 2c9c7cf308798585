package event

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/rest"
)

// maxName is how much of an object's name is in that of an Event, which may have 253 bytes.
const maxName = 200

// name is a new Event's.
func name(of string) string {
	return strings.TrimRight(of[:min(len(of), maxName)], ".-") + "." + strings.ToLower(rand.Text())
}

// API writes Events to the Kubernetes API, events.k8s.io/v1.
type API struct {
	client               eventsclient.EventsV1Interface
	controller, instance string
}

// NewAPI makes a sink. The client's rights: create and patch on Events of each namespace
// that has objects which Events are about. controller and instance say who reports.
func NewAPI(client *rest.Config, controller, instance string) (*API, error) {
	if client == nil || controller == "" || instance == "" {
		return nil, errors.New("a sink of Events needs a client configuration, a controller and an instance")
	}
	own := rest.CopyConfig(client) // what is written here does not hold up more important things
	own.Timeout, own.RateLimiter = callTimeout, nil
	c, err := eventsclient.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("client of Events: %w", err)
	}
	return &API{client: c, controller: controller, instance: instance}, nil
}

// namespace is where an Event about the object is: those of objects without one are in default.
func namespace(w Written) string { return cmp.Or(w.Regarding.Namespace, metav1.NamespaceDefault) }

// Create implements Sink.
func (a *API) Create(ctx context.Context, w Written) error {
	e := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace(w), Name: w.Name},
		EventTime:           metav1.NewMicroTime(w.First.Time),
		ReportingController: a.controller,
		ReportingInstance:   a.instance,
		Action:              w.Reason, // our reasons say what was done
		Reason:              w.Reason,
		Regarding:           w.Regarding,
		Note:                w.Note,
		Type:                w.Type,
	}
	if w.Count > 1 {
		e.Series = series(w)
	}
	if _, err := a.client.Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Event %s: %w", w.Reason, err)
	}
	return nil
}

// Repeat implements Sink.
func (a *API) Repeat(ctx context.Context, w Written) (bool, error) {
	patch, err := json.Marshal(map[string]any{"series": series(w)})
	if err != nil {
		return false, err
	}
	_, err = a.client.Events(namespace(w)).Patch(ctx, w.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("repeat Event %s: %w", w.Reason, err)
	}
	return true, nil
}

// series is how often and until when. The API takes no series of one.
func series(w Written) *eventsv1.EventSeries {
	return &eventsv1.EventSeries{Count: int32(max(w.Count, 2)), LastObservedTime: metav1.NewMicroTime(w.Last.Time)}
}
