package dossier

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
)

// Collection is where an API server has the objects of a kind.
type Collection struct {
	Kind     object.Kind
	Path     string // of all namespaces
	Selector string // of fields: leaves out what can never be meant
}

// Collections is every kind that is read, in the order of object.Kinds.
func Collections() []Collection {
	const gateway, own = "/apis/gateway.networking.k8s.io/v1/", "/apis/config.aether.io/v1/"
	return []Collection{
		{Kind: object.Namespace, Path: "/api/v1/namespaces"},
		{Kind: object.GatewayClass, Path: gateway + "gatewayclasses"},
		{Kind: object.GatewayParameters, Path: own + "gatewayparameters"},
		{Kind: object.MeshConfig, Path: own + "meshconfigs"},
		{Kind: object.ReferenceGrant, Path: gateway + "referencegrants"},
		// Neither holds a certificate, and both can be many and large.
		{Kind: object.Secret, Path: "/api/v1/secrets", Selector: "type!=kubernetes.io/service-account-token,type!=helm.sh/release.v1"},
		{Kind: object.ConfigMap, Path: "/api/v1/configmaps"},
		{Kind: object.BackendTLSPolicy, Path: gateway + "backendtlspolicies"},
		{Kind: object.Service, Path: "/api/v1/services"},
		{Kind: object.EndpointSlice, Path: "/apis/discovery.k8s.io/v1/endpointslices"},
		{Kind: object.Gateway, Path: gateway + "gateways"},
		{Kind: object.ListenerSet, Path: gateway + "listenersets"},
		{Kind: object.HTTPRoute, Path: gateway + "httproutes"},
	}
}

// Live reads objects as an API server lists them. Core objects were judged by it, it may know
// fields that are not known here, and most of them are none of Aether's business; custom ones are judged as files are, by the definitions of
// the version that this is.
func (r *Reader) Live(ctx context.Context, kind object.Kind, items []json.RawMessage) ([]analyze.Document, error) {
	out := make([]analyze.Document, 0, len(items))
	for _, item := range items {
		d, err := r.live(ctx, kind, item)
		if err != nil {
			return nil, fmt.Errorf("read a %s as the API server lists it: %w", kind, err)
		}
		out = append(out, d...)
	}
	return out, nil
}

func (r *Reader) live(ctx context.Context, kind object.Kind, item json.RawMessage) ([]analyze.Document, error) {
	if o := core(kind); o != nil {
		if err := json.Unmarshal(item, o); err != nil {
			return nil, err
		}
		return []analyze.Document{{Key: object.Key{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()}, Object: o}}, nil
	}
	docs, err := manifest.ParseJSON(item)
	if err != nil {
		return nil, err
	}
	var out []analyze.Document
	for i := range docs {
		raw := docs[i].Raw
		d := r.decode(ctx, &docs[i])
		if d.Object != nil {
			if err := known(d.Object, raw); err != nil {
				return nil, err
			}
		}
		out = append(out, d)
	}
	return out, nil
}

// core is an empty object of a kind that an API server has by itself; nil of any other.
func core(kind object.Kind) object.Object {
	switch kind { //nolint:exhaustive // the rest is custom
	case object.Namespace:
		return &corev1.Namespace{}
	case object.Secret:
		return &corev1.Secret{}
	case object.ConfigMap:
		return &corev1.ConfigMap{}
	case object.Service:
		return &corev1.Service{}
	case object.EndpointSlice:
		return &discoveryv1.EndpointSlice{}
	}
	return nil
}

// known gives an object what a server sets and a manifest cannot: which of two is older decides
// who has a port.
func known(o object.Object, raw []byte) error {
	var of struct {
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return err
	}
	o.SetUID(of.Metadata.UID)
	o.SetGeneration(of.Metadata.Generation)
	o.SetCreationTimestamp(of.Metadata.CreationTimestamp)
	o.SetDeletionTimestamp(of.Metadata.DeletionTimestamp)
	return nil
}
