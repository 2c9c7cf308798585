// Package kube measures Aether on Kubernetes: from an object written to the API to what
// comes of it, and what it costs. It reports numbers and judges none of them.
package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/test/bench/rig"
)

// gateway is the one that all routes but foreign ones are attached to.
const gateway = "web"

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: rig.Namespace, Name: name}
}

func host(i int) string { return fmt.Sprintf("r%d.example.com", i) }

// prepare makes a Gateway whose hosts have a scope each, as those of one with thousands of
// routes have anyway, and returns where it answers.
func prepare(ctx context.Context, r *rig.Rig) (string, error) {
	scopes := configv1.RouteScopesPerHost
	for _, o := range []rig.Object{
		&configv1.GatewayParameters{ObjectMeta: meta("bench"), Spec: configv1.GatewayParametersSpec{RouteScopes: &scopes}},
		&gatewayv1.Gateway{ObjectMeta: meta(gateway), Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "coxswain",
			Infrastructure: &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{
				Group: configv1.GroupName, Kind: "GatewayParameters", Name: "bench",
			}},
			Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
		}},
	} {
		if err := r.API.Create(ctx, o); err != nil {
			return "", err
		}
	}
	return r.Reach(ctx, gateway)
}

func service(i int) rig.Object {
	return &corev1.Service{ObjectMeta: meta(fmt.Sprintf("s%d", i)), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
}

func slice(r *rig.Rig, i int) *discoveryv1.EndpointSlice {
	m := meta(fmt.Sprintf("s%d", i))
	m.Labels = map[string]string{discoveryv1.LabelServiceName: m.Name}
	return &discoveryv1.EndpointSlice{
		ObjectMeta: m, AddressType: discoveryv1.AddressTypeIPv4,
		Ports:     []discoveryv1.EndpointPort{{Port: ptr.To(r.Backend.Port)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{r.Backend.IP}}},
	}
}

// route is the i-th, to the i-th of so many services.
func route(i, services int) *gatewayv1.HTTPRoute {
	return routeTo(i, fmt.Sprintf("s%d", i%services), gateway)
}

func routeTo(i int, service, parent string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{ObjectMeta: meta(fmt.Sprintf("%s-r%d", parent, i)), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(parent)}}},
		Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(host(i))},
		Rules: []gatewayv1.HTTPRouteRule{{
			Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchPathPrefix), Value: ptr.To("/")}}},
			BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{BackendObjectReference: gatewayv1.BackendObjectReference{
				Name: gatewayv1.ObjectName(service), Port: ptr.To(gatewayv1.PortNumber(80)),
			}}}},
		}},
	}}
}

// populate makes services with an endpoint each, and routes, and returns when all are told
// of in statuses.
func populate(ctx context.Context, r *rig.Rig, services, routes int) error {
	if err := r.API.CreateAll(ctx, services, service); err != nil {
		return err
	}
	if err := r.API.CreateAll(ctx, services, func(i int) rig.Object { return slice(r, i) }); err != nil {
		return err
	}
	if err := r.API.CreateAll(ctx, routes, func(i int) rig.Object { return route(i, services) }); err != nil {
		return err
	}
	return r.Settled(ctx, gateway, routes)
}
