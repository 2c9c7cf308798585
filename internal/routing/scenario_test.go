package routing

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/routing/trust"
)

var update = flag.Bool("update", false, "rewrite testdata/*.out.yaml and delete the stale")

// TestScenarios reads manifests and writes what becomes of them in words a reviewer can
// read. In a Secret, @one and @other stand for two certificates and their keys, in a ConfigMap
// for the certificates.
func TestScenarios(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	known := map[string]bool{}
	for _, in := range inputs {
		golden := strings.TrimSuffix(in, ".in.yaml") + ".out.yaml"
		known[golden] = true
		t.Run(strings.TrimSuffix(filepath.Base(in), ".in.yaml"), func(t *testing.T) {
			r := newReplica(t)
			r.apply(readManifests(t, in)...)
			got := r.describe()
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s (-), now (+):\n%s", golden, diff)
			}
		})
	}
	outputs, err := filepath.Glob("testdata/*.out.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range outputs {
		switch {
		case known[out]:
		case !*update:
			t.Errorf("%s belongs to no scenario", out)
		default:
			if err := os.Remove(out); err != nil {
				t.Error(err)
			}
		}
	}
}

func readManifests(t *testing.T, path string) []object.Change {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var changes []object.Change
	documents := yamlutil.NewYAMLReader(newReader(data))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return changes
		}
		if err != nil {
			t.Fatal(err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if meta.Kind == "" { // comments only
			continue
		}
		o, err := newObject(meta.Kind)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			t.Fatalf("%s: %s: %v\n%s", path, meta.Kind, err, document)
		}
		if o.GetGeneration() == 0 {
			o.SetGeneration(1)
		}
		if s, is := o.(*corev1.Secret); is {
			fillSecret(s)
		}
		if m, is := o.(*corev1.ConfigMap); is {
			for k, v := range m.Data {
				p := pairs()
				m.Data[k] = strings.NewReplacer("@one", string(p[0].cert), "@other", string(p[1].cert)).Replace(v)
			}
		}
		changes = append(changes, change(o, object.Kind(meta.Kind)))
	}
}

func newObject(kind string) (object.Object, error) {
	switch object.Kind(kind) {
	case object.GatewayClass:
		return &gatewayv1.GatewayClass{}, nil
	case object.Gateway:
		return &gatewayv1.Gateway{}, nil
	case object.ListenerSet:
		return &gatewayv1.ListenerSet{}, nil
	case object.HTTPRoute:
		return &gatewayv1.HTTPRoute{}, nil
	case object.ReferenceGrant:
		return &gatewayv1.ReferenceGrant{}, nil
	case object.Namespace:
		return &corev1.Namespace{}, nil
	case object.Service:
		return &corev1.Service{}, nil
	case object.EndpointSlice:
		return &discoveryv1.EndpointSlice{}, nil
	case object.Secret:
		return &corev1.Secret{}, nil
	case object.ConfigMap:
		return &corev1.ConfigMap{}, nil
	case object.MeshConfig:
		return &configv1.MeshConfig{}, nil
	case object.BackendTLSPolicy:
		return &gatewayv1.BackendTLSPolicy{}, nil
	case object.GatewayParameters:
		return &configv1.GatewayParameters{}, nil
	}
	return nil, fmt.Errorf("kind %q is unknown", kind)
}

func fillSecret(s *corev1.Secret) {
	p := pairs()
	s.Data = map[string][]byte{}
	for k, v := range s.StringData {
		pick := map[string]map[string][]byte{
			"@one":   {trust.Key: p[0].cert, corev1.TLSCertKey: p[0].cert, corev1.TLSPrivateKeyKey: p[0].key},
			"@other": {trust.Key: p[1].cert, corev1.TLSCertKey: p[1].cert, corev1.TLSPrivateKeyKey: p[1].key},
		}
		if s.Data[k] = pick[v][k]; s.Data[k] == nil {
			s.Data[k] = []byte(v)
		}
	}
	s.StringData = nil
}
