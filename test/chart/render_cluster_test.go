//go:build cluster

// Package chart_test has the charts rendered by Helm, and on a cluster installed, upgraded,
// rolled back and removed by it, with traffic meanwhile.
package chart_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/release"
)

var update = flag.Bool("update", false, "rewrite the goldens")

// helm runs it without a cluster and returns what it printed, or what it complained of.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	program, err := build.Helm("../..").Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stderr.String(), err
	}
	return stdout.String(), nil
}

func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "aether", "../../charts/aether", "--namespace", "aether-system"}, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// made is what is another each time that it is made.
var made = regexp.MustCompile(`((?:ca\.crt|tls\.crt|tls\.key|caBundle):) [A-Za-z0-9+/]{200,}=*`)

func TestGoldens(t *testing.T) {
	const in, out = ".values.yaml", ".golden.yaml"
	inputs, err := filepath.Glob("testdata/*" + in)
	if err != nil || len(inputs) == 0 {
		t.Fatalf("inputs %v, %v", inputs, err)
	}
	var wanted []string
	for _, input := range inputs {
		golden := strings.TrimSuffix(input, in) + out
		wanted = append(wanted, golden)
		t.Run(filepath.Base(input), func(t *testing.T) {
			got := made.ReplaceAllString(render(t, "--values", input), "$1 MADE")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("-want +got (go test -tags cluster ./test/chart -run Goldens -update):\n%s", diff)
			}
		})
	}
	there, err := filepath.Glob("testdata/*" + out)
	if err != nil {
		t.Fatal(err)
	}
	for _, golden := range there {
		switch {
		case slices.Contains(wanted, golden):
		case *update:
			if err := os.Remove(golden); err != nil {
				t.Error(err)
			}
		default:
			t.Errorf("%s has no input", golden)
		}
	}
}

// What is wrong is refused with its path, before anything is made.
func TestWrongValuesAreRefused(t *testing.T) {
	for value, complaint := range map[string]string{
		"discovry.port=1":                                    "'discovry' not allowed",
		"discovery.prt=1":                                    "at '/discovery': additional properties 'prt' not allowed",
		"discovery.port=high":                                "at '/discovery/port': got string, want integer",
		"discovery.port=80":                                  "at '/discovery/port'",
		"discovery.port=8080":                                "discovery.port 8080 is a port that the controller has for something else",
		"discovery.port=9443":                                "discovery.port 9443 is a port that the controller has for something else",
		"discovery.port=50052":                               "both 50052",
		"webhook.certificate=cert-manager":                   "at '/webhook/certificate'",
		"discovery.ca.mode=manual":                           "at '/discovery/ca/mode'",
		"discovery.ca.lifetime=10":                           "at '/discovery/ca/lifetime'",
		"discovery.svidTtl=1day":                             "at '/discovery/svidTtl'",
		"otel.endpoint=https://collector:4317":               "at '/otel/endpoint'",
		"otel.endpoint=collector:65536":                      "at '/otel/endpoint'",
		"otel.endpoint=my_collector:4317":                    "at '/otel/endpoint'",
		"otel.endpoint=Collector:4317":                       "at '/otel/endpoint'",
		"otel.tls.serverName=10.0.0.1":                       "at '/otel/tls/serverName'",
		"otel.tls.serverName=a b":                            "at '/otel/tls/serverName'",
		"otel.tls.caConfigMap=a: b":                          "at '/otel/tls/caConfigMap'",
		"otel.traceSampleRate=2":                             "at '/otel/traceSampleRate'",
		"otel.tls.enabled=yes":                               "at '/otel/tls/enabled'",
		"otel.tls.enabled=true":                              "otel.tls.enabled needs otel.endpoint",
		"otel.tls.serverName=x":                              "and otel.tls.enabled is false",
		"otel.tls.caConfigMap=x":                             "and otel.tls.enabled is false",
		"otel.logs=true":                                     "otel.logs has no effect while otel.enabled is false",
		"otel.enabled=true,otel.traceExport=true":            "otel.traceExport needs otel.endpoint",
		"otel.tls.enabled=true,otel.endpoint=10.0.0.1:4317":  "set otel.tls.serverName",
		"otel.tls.enabled=true,otel.endpoint=[fd00::1]:4317": "set otel.tls.serverName",
		"spire.enabled=maybe":                                "at '/spire/enabled'",
		"controller.spireWorkloadSocket=/run/agent.sock":     "at '/controller/spireWorkloadSocket'",
		"images.envoy.digest=latest":                         "at '/images/envoy/digest'",
		"controller.resources.requests.cpu=much":             "at '/controller/resources/requests/cpu'",
		"controller.affinity.nodeAfinity.x=1":                "at '/controller/affinity'",
		"controller.tolerations[0].keys=x":                   "at '/controller/tolerations/0'",
		"sharedProxy.podLabels.app\\.kubernetes\\.io/name=x": "at '/sharedProxy/podLabels/app.kubernetes.io~1name'",
		"sharedProxy.drain.timeoutSeconds=5":                 "timeoutSeconds 5 is not longer than delaySeconds 5",
		"watchNamespaces=shop":                               "at '/watchNamespaces': got string, want array",
		"watchNamespaces={Shop}":                             "at '/watchNamespaces/0'",
		"watchNamespaces={shop,shop}":                        "at '/watchNamespaces'",
		"watchNamespaces={a},gatewayClass.parameters.name=x,gatewayClass.parameters.namespace=b": "gatewayClass.parameters.namespace b is not among watchNamespaces",
		"meshConfig.seeder=argocd":       "at '/meshConfig/seeder': value must be one of 'helm', 'controller'",
		"gatewayClass.parameters.name=x": "at '/gatewayClass/parameters'",
		"proxy.hostNetwork=true":         "at '/proxy': additional properties 'hostNetwork' not allowed",
	} {
		if out, err := helm(t, "template", "aether", "../../charts/aether", "--set", value); err == nil || !strings.Contains(out, complaint) {
			t.Errorf("%s: %v, %s\nwant %s", value, err, out, complaint)
		}
	}
}

// helm upgrade --reuse-values renders this chart with the values of an older one, in which what is
// new since is not there at all.
func TestValuesOfAnOlderChartAreTheDefaults(t *testing.T) {
	const flag = "--shared-proxy-memory"
	older := render(t, "--set", "sharedProxy.memoryPerNamespace=null,watchNamespaces=null")
	if wrong := regexp.MustCompile(flag + `|--watch-namespaces|--[a-z-]+=\n|<no value>`).FindString(older); wrong != "" {
		t.Errorf("%q is rendered", wrong)
	}
	if !strings.Contains(older, "--gateway-class=coxswain\n") {
		t.Error("the controller is not rendered")
	}
	if any := render(t, "--set", "sharedProxy.memoryPerNamespace=0"); !strings.Contains(any, flag+"=0\n") {
		t.Error("0, which is no bound, is not rendered")
	}
}

// rules are those of all roles that are rendered.
func rules(t *testing.T, rendered string) (out []rbacv1.PolicyRule) {
	t.Helper()
	for doc := range strings.SplitSeq(rendered, "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			t.Fatalf("%v\n%s", err, doc)
		}
		if role.Kind == "ClusterRole" || role.Kind == "Role" {
			out = append(out, role.Rules...)
		}
	}
	if len(out) == 0 {
		t.Fatal("there are no roles")
	}
	return out
}

// In mode external nothing of ours may write any Secret, and in mode auto only make one.
func TestWhoMayWriteSecrets(t *testing.T) {
	for mode, allowed := range map[string][]string{"auto": {"create"}, "external": nil} {
		var may []string
		for _, rule := range rules(t, render(t, "--set", "discovery.ca.mode="+mode)) {
			for _, verb := range rule.Verbs {
				if slices.Contains(rule.Resources, "secrets") && !slices.Contains([]string{"get", "list", "watch"}, verb) {
					may = append(may, verb)
				}
			}
		}
		if !slices.Equal(may, allowed) {
			t.Errorf("mode %s may %v Secrets, want %v", mode, may, allowed)
		}
	}
}

// A right is named; nothing is given by wildcard, and nothing that makes more rights.
func TestRightsAreNamed(t *testing.T) {
	for _, rule := range rules(t, render(t)) {
		for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs) {
			if strings.Contains(word, "*") || slices.Contains([]string{"bind", "escalate", "impersonate", "roles", "rolebindings", "clusterroles", "pods/exec"}, word) {
				t.Errorf("%s in %+v", word, rule)
			}
		}
	}
}

// With watchNamespaces the controller has rights there and in its own namespace; elsewhere those to
// what is in no namespace, and to see that other releases are there.
func TestRightsEndWithTheNamespacesThatAreWatched(t *testing.T) {
	all := render(t, "--set", "watchNamespaces={shop,billing},gatewayClass.name=shops,webhook.certificate=self")
	bound := map[string][]string{}
	var wide []string
	for doc := range strings.SplitSeq(all, "\n---\n") {
		var o struct {
			rbacv1.ClusterRole
			RoleRef rbacv1.RoleRef `json:"roleRef"`
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		switch {
		case o.Kind == "RoleBinding" && o.RoleRef.Kind == "ClusterRole":
			bound[o.RoleRef.Name] = append(bound[o.RoleRef.Name], o.Namespace)
		case o.Kind == "ClusterRoleBinding" && o.RoleRef.Name != "aether-controller:aether-system":
			t.Errorf("%s is bound everywhere", o.RoleRef.Name)
		case o.Kind == "ClusterRole" && o.Name == "aether-controller:aether-system":
			for _, r := range o.Rules {
				for _, resource := range r.Resources {
					wide = append(wide, strings.Join(append([]string{resource}, r.ResourceNames...), " "))
				}
			}
		}
	}
	if diff := cmp.Diff(map[string][]string{"aether-controller-namespaces:aether-system": {"aether-system", "billing", "shop"}}, bound); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want := []string{
		"namespaces", "customresourcedefinitions", "gatewayclasses shops", "gatewayclasses/status shops", "tokenreviews", "leases", "subjectaccessreviews",
		"validatingwebhookconfigurations aether-controller-webhook.aether-system",
	}
	if diff := cmp.Diff(want, wide); diff != "" {
		t.Errorf("everywhere: -want +got:\n%s", diff)
	}
}

// Nothing of two releases that is in no namespace has one name.
func TestTwoReleasesHaveNoNameInCommon(t *testing.T) {
	names := func(namespace, class string) (out []string) {
		rendered, err := helm(t, "template", "aether", "../../charts/aether", "--namespace", namespace, "--set", "gatewayClass.name="+class+",watchNamespaces={"+namespace+"-apps}")
		if err != nil {
			t.Fatalf("%v\n%s", err, rendered)
		}
		for doc := range strings.SplitSeq(rendered, "\n---\n") {
			var o struct {
				Kind     string
				Metadata struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				t.Fatal(err)
			}
			if o.Kind == "" {
				continue // comments
			}
			out = append(out, o.Kind+" "+o.Metadata.Namespace+"/"+o.Metadata.Name)
		}
		return out
	}
	first := names("team-a", "a")
	for _, name := range names("team-b", "b") {
		if slices.Contains(first, name) {
			t.Errorf("both have %s", name)
		}
	}
	if len(first) < 10 {
		t.Errorf("a release is %v", first)
	}
}

// One makes the default MeshConfig, or nobody does; the controller has the rights only if it is
// the one. Nobody renders it in an upgrade.
func TestOneSeederAtATime(t *testing.T) {
	const object, flag, record = "kind: MeshConfig\n", "--seed-mesh-config\n", "aether-seeded"
	for args, want := range map[string]string{
		"meshConfig.seeder=helm":                                      object,
		"meshConfig.seeder=controller":                                flag + record,
		"meshConfig.createDefault=false":                              "",
		"meshConfig.createDefault=false,meshConfig.seeder=controller": "",
		"meshConfig.seeder=helm --is-upgrade":                         "",
	} {
		rendered, got := render(t, append([]string{"--set"}, strings.Fields(args)...)...), ""
		for _, part := range []string{object, flag, record} {
			if strings.Contains(rendered, part) {
				got += part
			}
		}
		if got != want {
			t.Errorf("%s renders %q, want %q", args, got, want)
		}
		may := slices.ContainsFunc(rules(t, rendered), func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.Resources, "meshconfigs") && slices.Contains(r.Verbs, "create")
		})
		if may != strings.Contains(want, flag) {
			t.Errorf("%s: the controller may make MeshConfigs: %t", args, may)
		}
	}
}

// The pods of dedicated Gateways' proxies are those of the shared ones, but for what is the
// shared ones' own.
func TestOneTemplateHasBothProxies(t *testing.T) {
	var shared, dedicated map[string]any
	for doc := range strings.SplitSeq(render(t), "\n---\n") {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Spec     struct{ Template map[string]any }
			Data     map[string]string
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		switch o.Kind + "/" + o.Metadata.Name {
		case "Deployment/coxswain-shared-proxy":
			shared = o.Spec.Template["spec"].(map[string]any)
		case "ConfigMap/aether-proxy-template":
			var pod map[string]any
			if err := yaml.Unmarshal([]byte(o.Data["pod.yaml"]), &pod); err != nil {
				t.Fatal(err)
			}
			dedicated = pod["spec"].(map[string]any)
		}
	}
	delete(shared, "topologySpreadConstraints")
	if diff := cmp.Diff(shared, dedicated); diff != "" || len(shared) == 0 {
		t.Errorf("-shared +dedicated:\n%s", diff)
	}
}

func TestTheDefinitionsAreRenderedAsTheyAre(t *testing.T) {
	out, err := helm(t, "template", "aether-crds", "../../charts/crds")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files, err := filepath.Glob("../../charts/crds/templates/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, strings.TrimSpace(strings.TrimPrefix(string(text), "---\n"))) {
			t.Errorf("%s is rendered as something else", file)
		}
	}
}

// The Envoy that is tested, the one that the chart names and the one that test clusters have
// are the same.
func TestTheChartNamesTheEnvoyThatIsTested(t *testing.T) {
	versions, err := os.ReadFile("../../tools/versions.env")
	if err != nil {
		t.Fatal(err)
	}
	_, tag, _ := strings.Cut(release.EnvoyImage, ":v")
	if !strings.Contains(string(versions), "ENVOY_VERSION="+tag+"\n") || !strings.Contains(render(t), `"`+release.EnvoyImage+`"`) {
		t.Errorf("%s is not what tools/versions.env has, or not in the chart", release.EnvoyImage)
	}
}
