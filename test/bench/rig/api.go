package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
)

// Namespace is where everything is that a measurement makes.
const Namespace = "bench"

// atOnce is how many objects are created at a time.
const atOnce = 16

// API writes and reads objects.
type API struct {
	Core      coreclient.CoreV1Interface
	Discovery discoveryclient.DiscoveryV1Interface
	gateway   rest.Interface
	own       rest.Interface
}

// Object is what the API takes.
type Object interface {
	metav1.Object
	runtime.Object
}

func newAPI(config *rest.Config) (*API, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(gatewayv1.Install(scheme), configv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	client := func(gv schema.GroupVersion) (rest.Interface, error) {
		c := rest.CopyConfig(config)
		c.APIPath, c.GroupVersion, c.QPS = "/apis", &gv, -1
		c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
		return rest.RESTClientFor(c)
	}
	var a API
	var errs [4]error
	a.Core, errs[0] = coreclient.NewForConfig(config)
	a.Discovery, errs[1] = discoveryclient.NewForConfig(config)
	a.gateway, errs[2] = client(schema.GroupVersion(gatewayv1.GroupVersion))
	a.own, errs[3] = client(configv1.GroupVersion())
	return &a, errors.Join(errs[:]...)
}

func (a *API) at(o Object) (client rest.Interface, resource string, namespaced bool) {
	switch o.(type) {
	case *gatewayv1.GatewayClass:
		return a.gateway, "gatewayclasses", false
	case *gatewayv1.Gateway:
		return a.gateway, "gateways", true
	case *gatewayv1.HTTPRoute:
		return a.gateway, "httproutes", true
	case *configv1.GatewayParameters:
		return a.own, "gatewayparameters", true
	case *configv1.MeshConfig:
		return a.own, "meshconfigs", true
	}
	return nil, "", false
}

// Create writes an object that is not there yet.
func (a *API) Create(ctx context.Context, o Object) error {
	var err error
	switch o := o.(type) {
	case *corev1.Service:
		_, err = a.Core.Services(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *discoveryv1.EndpointSlice:
		_, err = a.Discovery.EndpointSlices(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	default:
		client, resource, namespaced := a.at(o)
		if client == nil {
			return fmt.Errorf("create %T: not known", o)
		}
		err = client.Post().NamespaceIfScoped(o.GetNamespace(), namespaced).Resource(resource).Body(o).Do(ctx).Error()
	}
	if err != nil {
		return fmt.Errorf("create %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// CreateAll writes n objects, several at a time.
func (a *API) CreateAll(ctx context.Context, n int, object func(i int) Object) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var workers sync.WaitGroup
	for range atOnce {
		workers.Go(func() {
			for i := range next {
				if err := a.Create(ctx, object(i)); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	workers.Wait()
	return context.Cause(ctx)
}

// Get reads an object of the Gateway API or our own.
func (a *API) Get(ctx context.Context, namespace, name string, into Object) error {
	client, resource, namespaced := a.at(into)
	return client.Get().NamespaceIfScoped(namespace, namespaced).Resource(resource).Name(name).Do(ctx).Into(into)
}

// Patch merges a text into an object of the Gateway API.
func (a *API) Patch(ctx context.Context, o Object, body string) error {
	client, resource, namespaced := a.at(o)
	return client.Patch("application/merge-patch+json").NamespaceIfScoped(o.GetNamespace(), namespaced).
		Resource(resource).Name(o.GetName()).Body([]byte(body)).Do(ctx).Error()
}

// Delete takes away an object of the Gateway API or our own.
func (a *API) Delete(ctx context.Context, o Object) error {
	client, resource, namespaced := a.at(o)
	return client.Delete().NamespaceIfScoped(o.GetNamespace(), namespaced).Resource(resource).Name(o.GetName()).Do(ctx).Error()
}

// PutStatus writes an object's status.
func (a *API) PutStatus(ctx context.Context, o Object) error {
	client, resource, namespaced := a.at(o)
	return client.Put().NamespaceIfScoped(o.GetNamespace(), namespaced).Resource(resource).Name(o.GetName()).
		SubResource("status").Body(o).Do(ctx).Error()
}

// Watch follows what happens to the objects of a kind of the Gateway API from now on. What
// is there already is not told.
func (a *API) Watch(ctx context.Context, of Object) (watch.Interface, error) {
	client, resource, _ := a.at(of)
	request := func(o metav1.ListOptions) *rest.Request {
		return client.Get().Namespace(Namespace).Resource(resource).VersionedParams(&o, metav1.ParameterCodec)
	}
	now, err := request(metav1.ListOptions{Limit: 1}).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	list, err := meta.ListAccessor(now)
	if err != nil {
		return nil, err
	}
	return request(metav1.ListOptions{Watch: true, ResourceVersion: list.GetResourceVersion()}).Watch(ctx)
}
