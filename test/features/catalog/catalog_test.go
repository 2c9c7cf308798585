package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/report"
	"aether.io/aether/test/features/example"
)

const root = "../../.."

func read(t *testing.T) []*example.Example {
	t.Helper()
	all, err := example.ReadAll(filepath.Join(root, folder))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatal("there are no examples")
	}
	return all
}

func TestEverySupportedFeatureHasAnExample(t *testing.T) {
	for _, gap := range gaps(read(t), report.SupportedFeatures()) {
		t.Error(gap)
	}
}

func TestDocumentsAreThoseOfTheExamplesAndTheFeatures(t *testing.T) {
	for path, want := range files(read(t), report.SupportedFeatures()) {
		got, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s is not up to date, run make generate (-want +got):\n%s", path, diff)
		}
	}
}

func TestExamplesHaveManifestsWithoutPrivateKeys(t *testing.T) {
	for _, e := range read(t) {
		if len(e.Manifests) == 0 {
			t.Errorf("%s has no manifests", e.Name)
		}
		for name, text := range e.Manifests {
			if strings.Contains(text, "tls.key") || strings.Contains(text, "PRIVATE KEY") {
				t.Errorf("%s/%s has a private key: let the runner make it", e.Name, name)
			}
		}
	}
}

func TestGapsAreFound(t *testing.T) {
	all := []*example.Example{{Name: "a", Document: example.Document{Features: []string{"HTTPRoute", "HTTPRouteTelepathy"}}}}
	want := []string{
		"Gateway is supported and has no example",
		"a shows HTTPRouteTelepathy, which is no feature of the Gateway API",
	}
	if diff := cmp.Diff(want, gaps(all, []gatewayv1.SupportedFeature{{Name: "Gateway"}, {Name: "HTTPRoute"}})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
