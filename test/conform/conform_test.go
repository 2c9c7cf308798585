package main

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/routing/report"
)

func TestImagesAreThoseOfTheManifests(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, test := range map[string]struct {
		files fstest.MapFS
		want  map[string]string
		err   string
	}{
		"a backend has a name for each tag": {
			fstest.MapFS{
				"base/manifests.yaml": file("      - image: " + echo + ":v1\n        image: '" + coreDNS + ":v3'\n"),
				"tests/a.yaml":        file("image: " + echo + ":v2"), "tests/b.yaml": file("image: example.test/other:v1"),
				"mesh/c.yaml": file("image: example.test/more:v1"),
			},
			map[string]string{echo + ":v1": echo, echo + ":v2": echo, coreDNS + ":v3": coreDNS},
			"",
		},
		"what every run needs must be known": {fstest.MapFS{"base/manifests.yaml": file("image: example.test/other:v1")}, nil, "base/manifests.yaml needs image example.test/other:v1"},
		"no image is no suite":               {fstest.MapFS{"base/manifests.yaml": file("kind: Namespace")}, nil, "have no image"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := backends(test.files)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
}

func TestWhatTheSuitePrintsIsFollowed(t *testing.T) {
	failed, passed, err := follow(strings.NewReader("=== RUN   TestConformance\nconformance: PASS A\n    conformance: PASS no\nconformance: SKIP B\nconformance: FAIL C\n"))
	if err != nil || passed != 1 || !cmp.Equal(failed, []string{"C"}) {
		t.Errorf("failed %v, %d passed, %v", failed, passed, err)
	}
}

func TestStaticAddressesAreInsideAndOutsideOfThePool(t *testing.T) {
	if got := usable.String(); got != "198.19.64.255" {
		t.Errorf("usable is %s", got)
	}
}

// reported is a report of a profile with one feature that nobody has.
func reported(change func(core, extended map[string]any)) []byte {
	var supported []string
	for _, f := range report.SupportedFeatures() {
		if f.Name != "Gateway" && f.Name != "HTTPRoute" && f.Name != "ReferenceGrant" {
			supported = append(supported, string(f.Name))
		}
	}
	good := func() map[string]any {
		return map[string]any{"result": "success", "statistics": map[string]any{"Passed": 3, "Failed": 0, "Skipped": 0}}
	}
	core, extended := good(), good()
	extended["supportedFeatures"], extended["unsupportedFeatures"] = supported, []string{"Telepathy"}
	change(core, extended)
	text, err := yaml.Marshal(map[string]any{"profiles": []any{map[string]any{"name": "P", "core": core, "extended": extended}}})
	if err != nil {
		panic(err) // maps of strings can be written
	}
	return text
}

func TestAReportIsWhatIsClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(core, extended map[string]any)
		want   string // empty: good
	}{
		"good": {func(_, _ map[string]any) {}, ""},
		"a failure": {func(core, _ map[string]any) {
			core["result"], core["statistics"] = "failure", map[string]any{"Passed": 3, "Failed": 1}
		}, "P, core: failure, 3 passed, 1 failed, 0 skipped"},
		"a skipped test": {func(_, extended map[string]any) {
			extended["statistics"] = map[string]any{"Passed": 3, "Skipped": 1}
		}, "P, extended: success, 3 passed, 0 failed, 1 skipped"},
		"nothing ran": {func(core, _ map[string]any) { core["statistics"] = map[string]any{} }, "P, core: success, 0 passed"},
		"a claim that was not tested": {func(_, extended map[string]any) {
			list := extended["supportedFeatures"].([]string)
			extended["supportedFeatures"], extended["unsupportedFeatures"] = list[1:], list[:1]
		}, "claimed and not tested: [" + string(first()) + "]"},
		"a test of what is not claimed": {func(_, extended map[string]any) {
			extended["supportedFeatures"] = append(extended["supportedFeatures"].([]string), "Telepathy")
		}, "tested and not claimed: [Telepathy]"},
	} {
		t.Run(name, func(t *testing.T) {
			err := check(reported(test.change))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
	if err := check([]byte("profiles: []")); err == nil {
		t.Error("a report without a profile is good")
	}
}

// first is the first feature of the table that is no core one of a profile.
func first() gatewayv1.FeatureName { return report.SupportedFeatures()[0].Name }
