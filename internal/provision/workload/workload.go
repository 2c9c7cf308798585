// Package workload is the objects that run a dedicated Gateway's proxies, as they are to
// be: a Deployment and what goes with it, all in the Gateway's namespace, all owned by the
// Gateway. The Service is not among them; it is the record of the Gateway's ports (package
// provision).
package workload

import (
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/podtemplate"
)

// The resources that objects are made of, in the order in which they are made.
var (
	ServiceAccounts = corev1.SchemeGroupVersion.WithResource("serviceaccounts")
	Deployments     = appsv1.SchemeGroupVersion.WithResource("deployments")
	Budgets         = policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets")
	Autoscalers     = autoscalingv2.SchemeGroupVersion.WithResource("horizontalpodautoscalers")
)

// Resources lists them.
func Resources() []schema.GroupVersionResource {
	return []schema.GroupVersionResource{ServiceAccounts, Deployments, Budgets, Autoscalers}
}

// Object is one object as it is to be applied: only the fields that are ours.
type Object struct {
	Resource schema.GroupVersionResource
	*unstructured.Unstructured
}

// revisions is how many of a Deployment's old ReplicaSets are kept.
const revisions = 3

// Objects is what runs a Gateway's own proxies, in the order in which it is to be made. With
// autoscaling the Deployment does not say how many there are: that is the autoscaler's.
func Objects(f front.Front, t *pod.Template) ([]Object, error) {
	name, selector := front.DeploymentName(f.Gateway, f.Class), &metav1.LabelSelector{MatchLabels: pod.Selector(f.Gateway, f.Class)}
	template := t.For(f)
	deployment := &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: meta(f, name),
		Spec: appsv1.DeploymentSpec{
			Selector: selector, Template: template, RevisionHistoryLimit: new(int32(revisions)),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: new(intstr.FromInt32(0)), MaxSurge: new(intstr.FromString("25%")),
			}},
			Replicas: f.Proxies.Replicas,
		},
	}
	list := []struct {
		resource schema.GroupVersionResource
		object   runtime.Object
	}{
		{ServiceAccounts, &corev1.ServiceAccount{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta(f, front.Account(f.Gateway, f.Class)),
			AutomountServiceAccountToken: new(bool),
		}},
		{Deployments, deployment},
		{Budgets, &policyv1.PodDisruptionBudget{
			TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}, ObjectMeta: meta(f, name),
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: new(intstr.FromInt32(1)), Selector: selector, UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
			},
		}},
	}
	if f.Proxies.Autoscaling != nil {
		list = append(list, struct {
			resource schema.GroupVersionResource
			object   runtime.Object
		}{Autoscalers, autoscaler(f, name)})
	}
	var out []Object
	for _, o := range list {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o.object)
		if err != nil {
			return nil, fmt.Errorf("objects of Gateway %s: %w", f.Gateway, err)
		}
		delete(fields, "status")
		u := &unstructured.Unstructured{Object: fields}
		unstructured.RemoveNestedField(fields, "metadata", "creationTimestamp")
		unstructured.RemoveNestedField(fields, "spec", "template", "metadata", "creationTimestamp")
		out = append(out, Object{o.resource, u})
	}
	return out, nil
}

func autoscaler(f front.Front, name string) *autoscalingv2.HorizontalPodAutoscaler {
	a := f.Proxies.Autoscaling
	return &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta: metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}, ObjectMeta: meta(f, name),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MinReplicas:    a.MinReplicas, MaxReplicas: *a.MaxReplicas,
			Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
				Name:   corev1.ResourceCPU,
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: a.TargetCPUUtilizationPercentage},
			}}},
		},
	}
}

// meta is what every object of a Gateway has. What a Gateway's spec says of its
// infrastructure is on all of them, but for what others act upon: a ServiceAccount's
// annotations can be an identity.
func meta(f front.Front, name string) metav1.ObjectMeta {
	labels := podtemplate.Pairs(f.Labels, podtemplate.Label)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, pod.Selector(f.Gateway, f.Class))
	labels[front.ManagedByLabel] = front.FieldManager
	annotations := podtemplate.Pairs(f.Annotations, podtemplate.Annotation)
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[front.OfAnnotation] = f.Gateway.String()
	return metav1.ObjectMeta{
		Namespace: f.Gateway.Namespace, Name: name, Labels: labels, Annotations: annotations,
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: f.Gateway.Name, UID: f.UID, Controller: new(true),
		}},
	}
}
