package configv1_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
)

func read(t *testing.T, manifest string) *configv1.MeshConfig {
	t.Helper()
	c := &configv1.MeshConfig{}
	if err := yaml.Unmarshal([]byte(manifest), c); err != nil {
		t.Fatal(err)
	}
	return c
}

const manifest = `
apiVersion: config.aether.io/v1
kind: MeshConfig
metadata: {name: default, namespace: aether-system, generation: 7}
spec:
  proxy: {accessLogsEnabled: false, accessLogSuccessSampleRate: 0, traceSampleRate: 0.05}
status:
  observedGeneration: 6
  proxies: {total: 2, applied: 1, laggards: [{name: web-6c, generation: 6, since: "2026-01-01T00:00:00Z", reason: Disconnected}]}
`

func TestMeshConfigKeepsPresence(t *testing.T) {
	c := read(t, manifest)
	want := &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{
		AccessLogsEnabled: proto.Bool(false), AccessLogSuccessSampleRate: proto.Uint32(0), TraceSampleRate: proto.Float64(0.05),
	}}
	if diff := cmp.Diff(want, c.Spec, protocmp.Transform()); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if c.Name != "default" || c.Generation != 7 || c.Status.Proxies.Laggards[0].Name != "web-6c" {
		t.Errorf("got %+v", c)
	}
	out, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again := read(t, string(out))
	if diff := cmp.Diff(c, again, protocmp.Transform()); diff != "" {
		t.Errorf("after writing and reading (-want +got):\n%s", diff)
	}
}

func TestMeshConfigBytesAreStable(t *testing.T) {
	c := read(t, manifest)
	first, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		next, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, next) {
			t.Fatalf("two encodings differ:\n%s\n%s", first, next)
		}
	}
}

func TestMeshConfigWithoutSpecIsNotEmptySpec(t *testing.T) {
	for in, want := range map[string]string{
		`{"metadata":{"name":"default"}}`:                 `{"metadata":{"name":"default"}}`,
		`{"metadata":{"name":"default"},"spec":null}`:     `{"metadata":{"name":"default"}}`,
		`{"metadata":{"name":"default"},"spec":{}}`:       `{"metadata":{"name":"default"},"spec":{}}`,
		`{"spec":{"proxy":{}}}`:                           `{"spec":{"proxy":{}}}`,
		`{"spec":{"proxy":null}}`:                         `{"spec":{}}`,
		`{"spec":{"proxy":{"access_logs_enabled":true}}}`: `{"spec":{"proxy":{"accessLogsEnabled":true}}}`,
	} {
		c := &configv1.MeshConfig{}
		if err := json.Unmarshal([]byte(in), c); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		got, err := json.Marshal(c)
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestMeshConfigListsUnknownFields(t *testing.T) {
	c := read(t, `{"spec": {"zone": {"a": 1}, "proxy": {"accessLogEnabled": true, "emitStatsPod": true, "new": null}}}`)
	want := []string{"proxy.accessLogEnabled", "proxy.new", "zone"}
	if !slices.Equal(c.UnknownFields, want) {
		t.Errorf("unknown fields: got %q, want %q", c.UnknownFields, want)
	}
	if !c.Spec.GetProxy().GetEmitStatsPod() {
		t.Error("the known field beside them was lost")
	}
}

func TestMeshConfigWrongTypesAreNamed(t *testing.T) {
	c := &configv1.MeshConfig{Spec: &configv1.MeshConfigSpec{}, ObjectMeta: metav1.ObjectMeta{Name: "before"}}
	err := json.Unmarshal([]byte(`{"spec": {"proxy": {"accessLogsEnabled": "yes", "accessLogSuccessSampleRate": -1, "traceSampleRate": [1]}}}`), c)
	want := `spec.proxy.accessLogSuccessSampleRate: want a whole number that is not negative, got -1
spec.proxy.accessLogsEnabled: want true or false, got "yes"
spec.proxy.traceSampleRate: want a number, got [1]`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
	var field *configv1.FieldError
	if !errors.As(err, &field) || field.Path != "proxy.accessLogSuccessSampleRate" {
		t.Errorf("got field error %+v", field)
	}
	if c.Name != "before" {
		t.Error("a refused object changed what was there")
	}
	if _, _, err := configv1.DecodeSpec([]byte(`{"proxy": 7}`)); err == nil || err.Error() != "spec.proxy: want an object, got 7" {
		t.Errorf("got %v", err)
	}
}

func TestMeshConfigCopySharesNothing(t *testing.T) {
	c := read(t, manifest)
	c.UnknownFields = []string{"a"}
	d, ok := c.DeepCopyObject().(*configv1.MeshConfig)
	if !ok {
		t.Fatal("the copy is of another type")
	}
	if diff := cmp.Diff(c, d, protocmp.Transform()); diff != "" {
		t.Fatalf("copy (-want +got):\n%s", diff)
	}
	d.Spec.Proxy.TraceSampleRate = proto.Float64(1)
	d.UnknownFields[0] = "b"
	d.Status.Proxies.Laggards[0].Name = "other"
	if c.Spec.GetProxy().GetTraceSampleRate() != 0.05 || c.UnknownFields[0] != "a" || c.Status.Proxies.Laggards[0].Name != "web-6c" {
		t.Error("changing the copy changed the original")
	}
}

// Server-side apply and controller clients go through these two.
func TestMeshConfigThroughSchemeAndUnstructured(t *testing.T) {
	s := runtime.NewScheme()
	if err := configv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	c := read(t, manifest)
	kinds, _, err := s.ObjectKinds(c)
	if err != nil || kinds[0].String() != "config.aether.io/v1, Kind=MeshConfig" {
		t.Fatalf("kinds: %v, %v", kinds, err)
	}
	u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(c)
	if err != nil {
		t.Fatal(err)
	}
	back := &configv1.MeshConfig{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u, back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(c, back, protocmp.Transform()); diff != "" {
		t.Errorf("after the way through a map (-want +got):\n%s", diff)
	}
}

// Who writes the status of an object whose spec cannot be read needs the rest of it.
func TestWhatCannotBeReadHidesNothingElse(t *testing.T) {
	c, err := configv1.DecodeMeshConfig([]byte(`{"metadata":{"name":"default","generation":3},"spec":{"proxy":{"tracingEnabled":"x"}},"status":{"observedGeneration":2}}`))
	if _, is := errors.AsType[*configv1.FieldError](err); !is || c == nil || c.Generation != 3 || c.Spec != nil || c.Status.ObservedGeneration != 2 {
		t.Errorf("with a wrong spec: %+v, %v", c, err)
	}
	c, err = configv1.DecodeMeshConfig([]byte(`{"metadata":{"name":"default"},"spec":{},"status":{"observedGeneration":"x"}}`))
	if err != nil || c.Spec == nil || c.Status.ObservedGeneration != 0 {
		t.Errorf("with a wrong status: %+v, %v", c, err)
	}
	if c, err = configv1.DecodeMeshConfig([]byte(`{"metadata":{"name":7}}`)); err == nil || c != nil {
		t.Errorf("with wrong metadata: %+v, %v", c, err)
	}
}
