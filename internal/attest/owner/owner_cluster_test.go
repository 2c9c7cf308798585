//go:build cluster

package owner_test

import (
	"context"
	"errors"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"aether.io/aether/internal/attest/owner"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
	"aether.io/aether/test/cluster/apiserver"
)

const namespace = "default"

// cluster is an API server without controllers: the test makes what they would.
type cluster struct {
	*testing.T
	client kubernetes.Interface
}

func meta(name string, of *metav1.OwnerReference, of2 ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": "proxy"}}
	if of != nil {
		m.OwnerReferences = []metav1.OwnerReference{*of}
	}
	if len(of2) > 0 {
		m.Labels[front.ManagedByLabel] = front.FieldManager
		m.Annotations = map[string]string{front.OfAnnotation: of2[0]}
	}
	return m
}

func ref(apiVersion, kind, name string, uid types.UID) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid, Controller: new(true)}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "proxy"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "proxy"}}

func (c cluster) deployment(m metav1.ObjectMeta) *appsv1.Deployment {
	c.Helper()
	d, err := c.client.AppsV1().Deployments(namespace).Create(c.Context(), &appsv1.Deployment{
		ObjectMeta: m, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template()},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c cluster) set(m metav1.ObjectMeta) *appsv1.ReplicaSet {
	c.Helper()
	s, err := c.client.AppsV1().ReplicaSets(namespace).Create(c.Context(), &appsv1.ReplicaSet{
		ObjectMeta: m, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template()},
	}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return s
}

// pod makes a pod and what its token would say of it.
func (c cluster) pod(m metav1.ObjectMeta) svid.Workload {
	c.Helper()
	p, err := c.client.CoreV1().Pods(namespace).Create(c.Context(), &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{
		Containers: []corev1.Container{{Name: "c", Image: "i"}}, ServiceAccountName: "web-coxswain", AutomountServiceAccountToken: new(bool),
	}}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return svid.Workload{Namespace: namespace, ServiceAccount: "web-coxswain", Pod: spiffeid.Pod{Name: p.Name, UID: string(p.UID)}}
}

func setRef(s *appsv1.ReplicaSet) *metav1.OwnerReference {
	return ref("apps/v1", "ReplicaSet", s.Name, s.UID)
}

func deploymentRef(d *appsv1.Deployment) *metav1.OwnerReference {
	return ref("apps/v1", "Deployment", d.Name, d.UID)
}

// Under one account there may be any pod: only those of our Deployment are the Gateway's
// proxies, whatever the others claim.
func TestOnlyPodsOfOurDeploymentAreTheGatewaysProxies(t *testing.T) {
	server := apiserver.Start(t)
	client, err := kubernetes.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	c := cluster{t, client}
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "web-coxswain"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	gw := owner.Gateway{Name: key.Name{Namespace: namespace, Name: "web"}, Class: "coxswain", UID: "11111111-2222-3333-4444-555555555555"}
	of, gatewayRef := gw.Name.String(), ref("gateway.networking.k8s.io/v1", "Gateway", "web", gw.UID)
	ours := c.deployment(meta("web-coxswain", gatewayRef, of))
	set := c.set(meta("web-coxswain-1", deploymentRef(ours)))
	good := c.pod(meta("web-coxswain-1-a", setRef(set)))
	checker, err := owner.New(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	if err := checker.Check(t.Context(), good, gw); err != nil {
		t.Fatalf("a pod of ours: %v", err)
	}

	foreign := c.deployment(meta("mine", gatewayRef, of))
	unlabelled := c.deployment(meta("web2-coxswain", gatewayRef))
	orphan := c.deployment(meta("web3-coxswain", nil, "default/web3"))
	replaced := good
	replaced.Pod.UID = "99999999-2222-3333-4444-555555555555"
	notControlled := setRef(set)
	notControlled.Controller = nil
	other := func(name string, uid types.UID) owner.Gateway {
		return owner.Gateway{Name: key.Name{Namespace: namespace, Name: name}, Class: "coxswain", UID: uid}
	}
	for name, tt := range map[string]struct {
		who svid.Workload
		gw  owner.Gateway
	}{
		"a pod of nobody":                             {c.pod(meta("a", nil)), gw},
		"a pod that is only owned, not controlled":    {c.pod(meta("b", notControlled)), gw},
		"a pod of a ReplicaSet of nobody":             {c.pod(meta("c", setRef(c.set(meta("c", nil))))), gw},
		"a pod of another Deployment":                 {c.pod(meta("d", setRef(c.set(meta("d", deploymentRef(foreign)))))), gw},
		"a pod of a Deployment without our label":     {c.pod(meta("e", setRef(c.set(meta("e", deploymentRef(unlabelled)))))), other("web2", gw.UID)},
		"a pod of a Deployment of no Gateway":         {c.pod(meta("f", setRef(c.set(meta("f", deploymentRef(orphan)))))), other("web3", gw.UID)},
		"a pod with a UID made up for the ReplicaSet": {c.pod(meta("g", ref("apps/v1", "ReplicaSet", set.Name, "99999999-2222-3333-4444-555555555555"))), gw},
		"a pod of a Job of the ReplicaSet's name":     {c.pod(meta("h", ref("batch/v1", "Job", set.Name, set.UID))), gw},
		"a pod of a kind of another group":            {c.pod(meta("i", ref("example.com/v1", "ReplicaSet", set.Name, set.UID))), gw},
		"a pod that was replaced":                     {replaced, gw},
		"a pod of a Gateway that was replaced":        {good, other("web", "99999999-2222-3333-4444-555555555555")},
		"a pod of another Gateway":                    {good, other("other", gw.UID)},
		"a pod that does not exist":                   {svid.Workload{Namespace: namespace, Pod: spiffeid.Pod{Name: "nowhere", UID: "u"}}, gw},
	} {
		if err := checker.Check(t.Context(), tt.who, tt.gw); !errors.Is(err, svid.ErrNotAllowed) {
			t.Errorf("%s: %v", name, err)
		}
	}

	// What cannot be known is no refusal, and no permission.
	blind, err := owner.New(&rest.Config{Host: "https://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := blind.Check(context.Background(), good, gw); err == nil || errors.Is(err, svid.ErrNotAllowed) {
		t.Errorf("without an API server: %v", err)
	}
	if err := client.AppsV1().Deployments(namespace).Delete(t.Context(), ours.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := checker.Check(t.Context(), good, gw); !errors.Is(err, svid.ErrNotAllowed) {
		t.Errorf("a pod whose Deployment is gone: %v", err)
	}
}
