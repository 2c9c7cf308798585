// Package kube writes statuses to the Kubernetes API. It touches only what is ours: the
// entries of our controller, conditions of the types that we know, and of a Gateway that is
// ours no more what nobody wrote but us. An object that is already as it should be is read and not written.
package kube

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/status"
)

const (
	callTimeout   = 10 * time.Second // of one request
	changeTimeout = 30 * time.Second // of all requests of one write, and what the API server has us wait in between
	maxConflicts  = 10               // tries of one write that another writer is ahead of
)

// Config is what a Sink is made from. All but Former is required.
type Config struct {
	Client         *rest.Config // its rights: get on the kinds that have a status, update on their status
	ControllerName string       // whose entries are ours
	FieldManager   string       // as whom we write, up to 128 characters: no other program and no other release does
	Former         string       // as whom earlier versions wrote: what they did is ours too; empty: as nobody else
}

// Sink writes statuses to the API. It is safe for concurrent use.
type Sink struct {
	controller gatewayv1.GatewayController
	managers   []string // as whom we write, and as whom we did
	kinds      map[object.Kind]kind
	clients    map[object.Kind]rest.Interface
}

// kind is where the status of a kind is.
type kind struct {
	resource schema.GroupVersionResource
	empty    func() object.Object
}

// described is every kind whose status we write.
func described() map[object.Kind]kind {
	gateway := func(resource string) schema.GroupVersionResource {
		return schema.GroupVersion(gatewayv1.GroupVersion).WithResource(resource)
	}
	return map[object.Kind]kind{
		object.GatewayClass:     {gateway("gatewayclasses"), func() object.Object { return &gatewayv1.GatewayClass{} }},
		object.Gateway:          {gateway("gateways"), func() object.Object { return &gatewayv1.Gateway{} }},
		object.ListenerSet:      {gateway("listenersets"), func() object.Object { return &gatewayv1.ListenerSet{} }},
		object.HTTPRoute:        {gateway("httproutes"), func() object.Object { return &gatewayv1.HTTPRoute{} }},
		object.BackendTLSPolicy: {gateway("backendtlspolicies"), func() object.Object { return &gatewayv1.BackendTLSPolicy{} }},
		object.MeshConfig:       {configv1.GroupVersion().WithResource("meshconfigs"), func() object.Object { return &configv1.MeshConfig{} }},
	}
}

// Has reports whether objects of a kind have a status of which something is ours.
func (s *Sink) Has(k object.Kind) bool {
	_, ok := s.kinds[k]
	return ok
}

// New checks c. It does not call the API.
func New(c Config) (*Sink, error) {
	if c.Client == nil || c.ControllerName == "" || c.FieldManager == "" {
		return nil, errors.New("a sink of statuses needs a client configuration, a controller name and a field manager")
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(gatewayv1.Install(scheme), configv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	s := &Sink{controller: gatewayv1.GatewayController(c.ControllerName), managers: []string{c.FieldManager}, kinds: described(), clients: map[object.Kind]rest.Interface{}}
	if c.Former != "" {
		s.managers = append(s.managers, c.Former)
	}
	for kind, at := range s.kinds {
		gv := at.resource.GroupVersion()
		one := rest.CopyConfig(c.Client)
		one.APIPath, one.GroupVersion = "/apis", &gv
		one.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		one.Timeout = callTimeout
		client, err := rest.RESTClientFor(one)
		if err != nil {
			return nil, fmt.Errorf("client of %s: %w", at.resource.GroupResource(), err)
		}
		s.clients[kind] = client
	}
	return s, nil
}

// Write brings what is ours of the object's status to what d says, and reports whether that
// took a write. An object that is gone is no error, as what is said of it is gone with it; nor
// is one that took its place, of which something else will be said, or one of whose newer
// generation something has been said already.
func (s *Sink) Write(ctx context.Context, d status.Document) (wrote bool, err error) {
	return s.change(ctx, d.Key, d.UID, func(o object.Object) error {
		if d.UID != "" && o.GetUID() != d.UID || s.told(o) > d.Generation && o.GetGeneration() > d.Generation {
			return nil
		}
		return s.merge(o, d)
	})
}

// Remove takes what is ours out of the object's status. Without a UID the object is gone,
// and its status with it.
func (s *Sink) Remove(ctx context.Context, k object.Key, uid types.UID) error {
	if uid == "" {
		return nil
	}
	_, err := s.change(ctx, k, uid, func(o object.Object) error {
		if o.GetUID() == uid {
			s.clear(o)
		}
		return nil
	})
	return err
}

// change reads an object, expected to have that UID, edits it and writes its status if that
// made a difference, which it reports. A write that another is ahead of is done again with
// what the other wrote.
func (s *Sink) change(ctx context.Context, k object.Key, uid types.UID, edit func(object.Object) error) (wrote bool, err error) {
	client, known := s.clients[k.Kind]
	if !known {
		return false, fmt.Errorf("write status of %s: its kind has none", k)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	at := s.kinds[k.Kind]
	request := func(r *rest.Request) *rest.Request {
		return r.NamespaceIfScoped(k.Namespace, k.Kind.Namespaced()).Resource(at.resource.Resource).Name(k.Name)
	}
	// What the API server has in memory costs it least. If it is old, a write conflicts, and
	// whoever watches sees what is not as it should be.
	version := "0"
	// Exits: gone; as it should be already; written; another error than a conflict; too many conflicts.
	for try := 1; ; try++ {
		now := at.empty()
		err := read(request(client.Get()).VersionedParams(&metav1.GetOptions{ResourceVersion: version}, metav1.ParameterCodec).Do(ctx), now)
		missing := apierrors.IsNotFound(err)
		if version == "0" && (missing || err == nil && uid != "" && now.GetUID() != uid) {
			version = "" // that may be old
			continue
		}
		if missing {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read %s: %w", k, err)
		}
		before := now.DeepCopyObject()
		if err := edit(now); err != nil {
			return false, fmt.Errorf("write status of %s: %w", k, err)
		}
		if object.Alike(before, now) {
			return false, nil
		}
		err = request(client.Put()).SubResource("status").VersionedParams(&metav1.UpdateOptions{FieldManager: s.managers[0]}, metav1.ParameterCodec).Body(now).Do(ctx).Error()
		switch {
		case err == nil:
			return true, nil
		case apierrors.IsNotFound(err):
			return false, nil
		case !apierrors.IsConflict(err) || try == maxConflicts:
			return false, fmt.Errorf("write status of %s: %w", k, err)
		}
		version = ""
	}
}

// read takes in an object, a MeshConfig without its spec: that may be one that cannot be read, and
// a write of the status leaves it as it is.
func read(from rest.Result, into object.Object) error {
	c, is := into.(*configv1.MeshConfig)
	if !is {
		return from.Into(into)
	}
	if err := from.Error(); err != nil {
		return err
	}
	text, err := from.Raw()
	if err != nil {
		return err
	}
	read, err := configv1.DecodeMeshConfig(text)
	if read == nil {
		return err
	}
	read.Spec = nil
	*c = *read
	return nil
}
