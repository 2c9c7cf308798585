package workload_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/provision/pod"
	"aether.io/aether/internal/provision/workload"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

var update = flag.Bool("update", false, "write the goldens anew")

func objects(t *testing.T, f front.Front) []workload.Object {
	t.Helper()
	text, err := os.ReadFile("../pod/testdata/template.yaml")
	if err != nil {
		t.Fatal(err)
	}
	template, err := pod.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	list, err := workload.Objects(f, template)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestObjectsAreAsTheGoldensHaveThem(t *testing.T) {
	web := key.Name{Namespace: "shop", Name: "web"}
	for name, f := range map[string]front.Front{
		"fixed": {
			Gateway: web, Class: "coxswain", UID: "11111111-2222-3333-4444-555555555555",
			Labels: map[string]string{"team": "shop"}, Annotations: map[string]string{"note": "n", "eks.amazonaws.com/role-arn": "arn:x"},
			Proxies: front.Proxies{Replicas: new(int32(3)), DrainSeconds: 30},
		},
		"scaled": {
			Gateway: web, Class: "coxswain", UID: "11111111-2222-3333-4444-555555555555",
			Proxies: front.Proxies{
				DrainSeconds: 600,
				Autoscaling:  &configv1.Autoscaling{MinReplicas: new(int32(2)), MaxReplicas: new(int32(9)), TargetCPUUtilizationPercentage: new(int32(60))},
				Pod: configv1.PodTemplate{
					Labels: map[string]string{"tier": "edge"}, NodeSelector: map[string]string{"pool": "edge"},
					Resources: &configv1.PodResources{Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
					Env:       []configv1.EnvVar{{Name: "TZ", Value: "UTC"}},
				},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			for _, o := range objects(t, f) {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString("---\n" + string(text))
			}
			golden := "testdata/" + name + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, []byte(out.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNamesFitWhatTheyAreNamesOf(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"web", strings.Repeat("x", 63), strings.Repeat("x", 240), strings.Repeat("x", 239) + "y", "a.b", "1a"} {
		f := front.Front{Gateway: key.Name{Namespace: "shop", Name: name}, Class: "coxswain", UID: "u", Proxies: front.Proxies{Replicas: new(int32(1))}}
		for _, o := range objects(t, f) {
			n := o.GetName()
			switch o.Resource {
			case workload.ServiceAccounts:
				if n != name+"-coxswain" {
					t.Errorf("the account of %s is %s", name, n)
				}
			default:
				if len(validation.IsDNS1123Subdomain(n)) > 0 || len(n) > 63 {
					t.Errorf("%s of %s is called %q", o.Resource.Resource, name, n)
				}
			}
			for k, v := range o.GetLabels() {
				if problems := validation.IsValidLabelValue(v); len(problems) > 0 {
					t.Errorf("label %s of %s: %v", k, name, problems)
				}
			}
			if id := o.Resource.Resource + "/" + n; seen[id] {
				t.Errorf("two have the name %s", id)
			} else {
				seen[id] = true
			}
		}
		if own := front.OwnName(f.Gateway, f.Class); len(validation.IsDNS1035Label(own)) > 0 {
			t.Errorf("the Service of %s is called %q", name, own)
		}
	}
}
