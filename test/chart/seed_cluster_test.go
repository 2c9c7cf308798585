//go:build cluster

package chart_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/seed"
	"aether.io/aether/test/cluster/apiserver"
	"aether.io/aether/test/cluster/release"
)

// site is an API server without nodes, to which Helm installs, and which has what others make first.
type site struct {
	*testing.T
	server *apiserver.Server
	chart  string // of which templates can be edited
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{t, apiserver.Start(t), filepath.Join(t.TempDir(), "aether")}
	t.Setenv("KUBECONFIG", s.server.Kubeconfig)
	if err := os.CopyFS(s.chart, os.DirFS("../../charts/aether")); err != nil {
		t.Fatal(err)
	}
	s.kubectl("", "apply", "--server-side", "-f", "../../internal/crd/gateway-api", "-f", "../../charts/crds/templates")
	s.kubectl("", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all")
	s.kubectl("", "create", "namespace", release.Namespace)
	return s
}

func (s site) kubectl(input string, args ...string) string {
	s.Helper()
	out, err := s.server.Kubectl(s.Context(), input, args...)
	if err != nil {
		s.Fatal(err)
	}
	return strings.TrimSpace(out)
}

func (s site) helm(args ...string) string {
	s.Helper()
	out, err := helm(s.T, append(args, "--namespace", release.Namespace)...)
	if err != nil {
		s.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// seeded is what is written in the default MeshConfig, and its version; empty if there is none.
func (s site) seeded() string {
	s.Helper()
	return s.kubectl("", "get", "meshconfigs", "-n", release.Namespace, "-o", "jsonpath={range .items[*]}{.metadata.name} {.spec} {.metadata.resourceVersion}{end}")
}

// is fails unless the default MeshConfig is there with that spec.
func (s site) is(when, spec string) {
	s.Helper()
	if got := s.seeded(); !strings.HasPrefix(got, "default "+spec+" ") {
		s.Errorf("%s: %q, want default with spec %s", when, got, spec)
	}
}

// stays fails if the default MeshConfig differs in anything after f.
func (s site) stays(when string, f func()) {
	s.Helper()
	before := s.seeded()
	f()
	if after := s.seeded(); after != before {
		s.Errorf("%s: %q became %q", when, before, after)
	}
}

// edit changes the default that the chart would make, and everything else that it has a version of.
func (s site) edit() {
	s.Helper()
	for file, change := range map[string][2]string{
		"templates/meshconfig.yaml": {"\nspec: {}\n", "\nspec: {proxy: {tracingEnabled: true}}\n"},
		"Chart.yaml":                {"\nappVersion:", "\n# another\nappVersion:"},
	} {
		path := filepath.Join(s.chart, file)
		text, err := os.ReadFile(path)
		if err != nil {
			s.Fatal(err)
		}
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			s.Fatalf("%s has no %q", file, change[0])
		}
		if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
			s.Fatal(err)
		}
	}
}

// lead seeds as a leader of the release does.
func (s site) lead() {
	s.Helper()
	seeder, err := seed.New(seed.Config{Client: s.server.Config, Namespace: release.Namespace, Name: seed.Name(release.Name)})
	if err != nil {
		s.Fatal(err)
	}
	if err := seeder.Seed(s.Context()); err != nil {
		s.Fatal(err)
	}
}

const edited = `{"proxy":{"accessLogsEnabled":true}}`

func (s site) change() {
	s.Helper()
	s.kubectl("", "patch", "meshconfig", "default", "-n", release.Namespace, "--type=merge", "-p", `{"spec":`+edited+`}`)
}

func TestHelmSeedsWhenItInstallsAndNeverAgain(t *testing.T) {
	s := newSite(t)
	s.helm("install", release.Name, s.chart)
	s.is("installed", "{}")
	s.change()
	s.edit()
	s.stays("an upgrade whose chart has another default", func() { s.helm("upgrade", release.Name, s.chart) })
	s.is("upgraded", edited)
	// A rollback to the first revision has it among its objects, with no field that could differ.
	s.helm("rollback", release.Name, "1")
	s.is("rolled back", edited)
	s.stays("an upgrade that is forced", func() { s.helm("upgrade", release.Name, s.chart, "--force-conflicts") })
	s.stays("the uninstallation", func() { s.helm("uninstall", release.Name) })
	s.stays("an installation that finds it", func() { s.helm("install", release.Name, s.chart) })
	s.is("installed again", edited)

	s.kubectl("", "delete", "meshconfig", "default", "-n", release.Namespace)
	s.stays("an upgrade after it was deleted", func() { s.helm("upgrade", release.Name, s.chart) })
}

func TestTheControllerSeedsWhereTemplatesAreOnlyRendered(t *testing.T) {
	s := newSite(t)
	values := []string{"--set", "meshConfig.seeder=controller"}
	apply := func() {
		s.Helper()
		manifest := s.helm(append([]string{"template", release.Name, s.chart}, values...)...)
		s.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	apply()
	s.stays("what is rendered", apply)
	s.lead()
	s.is("the leader made it", "{}")
	s.change()
	s.edit()
	s.stays("another chart is applied", apply)
	s.stays("another leader", s.lead)
	// What a tool removes that tracks its objects by the label of the instance.
	if got := s.kubectl("", "get", "meshconfigs", "-n", release.Namespace, "-l", "app.kubernetes.io/instance="+release.Name, "-o", "name"); got != "" {
		t.Errorf("a tool would take %s for its own, and prune it", got)
	}
	s.kubectl("", "delete", "meshconfig", "default", "-n", release.Namespace)
	s.stays("after it was deleted", func() { apply(); s.lead() })

	// The same by Helm, on which nothing depends.
	s.helm(append([]string{"install", release.Name, s.chart, "--take-ownership", "--force-conflicts"}, values...)...)
	s.stays("an upgrade", func() { s.helm(append([]string{"upgrade", release.Name, s.chart}, values...)...) })
	s.stays("a rollback", func() { s.helm("rollback", release.Name, "1") })
}

// By the other seeder, what was rendered is applied again with all else: it has no field that
// could take away another's.
func TestARenderedMeshConfigThatIsAppliedAgainKeepsItsFields(t *testing.T) {
	s := newSite(t)
	manifest := s.helm("template", release.Name, s.chart)
	for range 2 {
		s.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	s.is("applied", "{}")
	s.change()
	s.kubectl(manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
	s.is("applied again", edited)
}

func TestNobodySeedsIfNobodyIsTo(t *testing.T) {
	s := newSite(t)
	for _, seeder := range []string{"helm", "controller"} {
		values := []string{"--set", "meshConfig.createDefault=false,meshConfig.seeder=" + seeder}
		s.helm(append([]string{"install", release.Name, s.chart}, values...)...)
		s.helm(append([]string{"upgrade", release.Name, s.chart}, values...)...)
		if got := s.seeded(); got != "" {
			t.Errorf("seeder %s: %q", seeder, got)
		}
		s.helm("uninstall", release.Name)
	}
}
