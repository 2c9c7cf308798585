//go:build cluster

package kube_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/kube"
	"aether.io/aether/test/cluster/apiserver"
)

// rightsInOne are what one may do who may read in one namespace, and what is in none.
const rightsInOne = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: outside}
rules:
  - {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
  - {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [get, list, watch]}
  - {apiGroups: [gateway.networking.k8s.io], resources: [gatewayclasses], resourceNames: [coxswain], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: outside}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: outside}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: inside}
rules:
  - {apiGroups: ["", discovery.k8s.io, gateway.networking.k8s.io, config.aether.io], resources: ["*"], verbs: [get, list, watch]}
`

const bindInside = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: inside, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: inside}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: reader}]
`

func TestOnlySomeNamespacesAreRead(t *testing.T) {
	r := newRig(t)
	in := func(ns, manifest string) string {
		return strings.ReplaceAll(manifest, "namespace: default", "namespace: "+ns)
	}
	bind := func(ns string) string { return strings.ReplaceAll(bindInside, "NS", ns) }
	class := func(name string) string {
		return "{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: " + name + "}, spec: {controllerName: config.aether.io/gateway-controller}}\n"
	}
	r.define()
	for _, ns := range []string{"mine", "also", "others"} {
		r.kubectl("", "create", "namespace", ns)
	}
	r.kubectl(rightsInOne+"---"+bind("mine")+"---"+bind("also"), "create", "-f", "-")
	r.kubectl(in("mine", gateway)+"---"+in("others", gateway)+"---\n"+class("coxswain")+"---\n"+class("another"), "create", "-f", "-")

	config := rest.CopyConfig(r.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "reader"}
	// One of them is not there: nothing is in it, and the others are served.
	s, err := kube.New(kube.Config{Client: config, Namespaces: []string{"also", "mine", "missing"}, Class: "coxswain"})
	if err != nil {
		t.Fatal(err)
	}
	f := follow(t, s)
	key := func(kind object.Kind, ns, name string) object.Key {
		return object.Key{Kind: kind, Namespace: ns, Name: name}
	}
	f.wait("a first batch", func() bool { return f.synced })
	f.wait("the Gateway", f.has(key(object.Gateway, "mine", "web")))
	f.wait("the namespaces, all", f.has(key(object.Namespace, "", "others")))
	f.wait("the class", f.has(key(object.GatewayClass, "", "coxswain")))

	// It comes later, with rights.
	r.kubectl("", "create", "namespace", "missing")
	r.kubectl(bind("missing"), "create", "-f", "-")
	r.kubectl(in("missing", gateway)+"---"+in("also", route), "create", "-f", "-")
	f.wait("the Gateway of the one that came", f.has(key(object.Gateway, "missing", "web")))
	f.wait("the route", f.has(key(object.HTTPRoute, "also", "shop")))
	f.wait("an end of complaints", f.content)

	// What goes in one namespace leaves the other's alone.
	r.kubectl("", "delete", "gateway", "web", "--namespace=missing")
	f.wait("its end", f.hasNot(key(object.Gateway, "missing", "web")))

	// One that is refused is named with its namespace, and holds nothing up.
	r.kubectl("", "delete", "rolebinding", "inside", "--namespace=also")
	r.stop(apiserver.APIServer)
	r.start()
	f.wait("word of what is refused", f.complains("httproutes.gateway.networking.k8s.io of namespace also", "cannot be followed"))
	r.kubectl(in("mine", route), "create", "-f", "-")
	f.wait("the other's route", f.has(key(object.HTTPRoute, "mine", "shop")))

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects[key(object.HTTPRoute, "also", "shop")] == nil {
		t.Error("what cannot be read any more is not in effect any more")
	}
	for k := range f.objects {
		if k.Namespace != "" && !slices.Contains([]string{"also", "mine", "missing"}, k.Namespace) || k.Kind == object.GatewayClass && k.Name != "coxswain" {
			t.Errorf("%s was read", k)
		}
	}
	if f.mark.Positions["gateways.gateway.networking.k8s.io/mine"] == 0 || f.mark.Positions["namespaces"] == 0 {
		t.Errorf("positions %v", f.mark.Positions)
	}
}
