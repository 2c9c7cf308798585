package object_test

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
)

// A spec that was decoded has state that one which was copied does not.
func TestMeshConfigsAreComparedByWhatTheyMean(t *testing.T) {
	var read configv1.MeshConfig
	if err := yaml.Unmarshal([]byte("{metadata: {name: default, namespace: x}, spec: {proxy: {accessLogsEnabled: true}}}"), &read); err != nil {
		t.Fatal(err)
	}
	other := read.DeepCopy()
	if !object.Alike(&read, other) {
		t.Error("a copy is not alike")
	}
	other.Spec.Proxy.AccessLogsEnabled = proto.Bool(false)
	if object.Alike(&read, other) {
		t.Error("another spec is alike")
	}
	other = read.DeepCopy()
	other.Status.ObservedGeneration++
	if object.Alike(&read, other) {
		t.Error("another status is alike")
	}
}
