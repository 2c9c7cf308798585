package meshconfig_test

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/meshconfig"
)

// A field that is added to the proto must be shown by what shows them all.
func TestValuesAreThoseOfEveryField(t *testing.T) {
	own := &configv1.MeshConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{TraceSampleRate: proto.Float64(0)}},
	}
	var paths []string
	for _, v := range meshconfig.Resolve(meshconfig.System{TraceSampleRate: 0.5}, nil, own).Values() {
		paths = append(paths, v.Path)
		if v.Path == "proxy.traceSampleRate" && (v.Value != 0.0 || v.From != "shop/default") {
			t.Errorf("an explicit 0 is %v from %s", v.Value, v.From)
		}
		if v.From == meshconfig.FromSystem && meshconfig.SystemValue(v.Path) == "" {
			t.Errorf("%s is system config's, and nobody knows by which name", v.Path)
		}
	}
	for _, f := range meshconfig.Fields() {
		if f != "proxy" && !slices.Contains(paths, f) {
			t.Errorf("%s is not among %v", f, paths)
		}
	}
}
