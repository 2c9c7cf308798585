package object

import (
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/equality"

	configv1 "aether.io/aether/api/config/v1"
)

var semantic = func() interface{ DeepEqual(a, b any) bool } {
	e := equality.Semantic.Copy()
	if err := e.AddFunc(func(a, b *configv1.MeshConfigSpec) bool { return proto.Equal(a, b) }); err != nil {
		panic(err) // a function of another shape than is wanted: a bug that no start survives
	}
	return e
}()

// Alike reports whether two objects, or parts of them, mean the same. It is what is to be
// used in the place of equality.Semantic: a MeshConfig's spec is a message of protobuf, whose
// unexported fields make that panic.
func Alike(a, b any) bool { return semantic.DeepEqual(a, b) }
