package configv1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of Aether's own objects.
const GroupName = "config.aether.io"

// The kinds of this group.
const (
	KindMeshConfig        = "MeshConfig"
	KindGatewayParameters = "GatewayParameters"
)

// MeshConfigName is the only name that a MeshConfig may have: one a namespace.
const MeshConfigName = "default"

// GroupVersion is config.aether.io/v1.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1"}
}

// AddToScheme registers the objects of this group and their lists.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(
		GroupVersion(),
		&MeshConfig{}, &MeshConfigList{},
		&GatewayParameters{}, &GatewayParametersList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
