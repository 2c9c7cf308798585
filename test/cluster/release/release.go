// Package release puts Aether on the test cluster, as its users do: images, definitions, and
// the charts by Helm, in a namespace that takes no pod but restricted ones.
package release

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"aether.io/aether/test/cluster"
)

// Names of the release, as the documentation recommends them.
const (
	Namespace   = "aether-system"
	Name        = "aether"
	Definitions = "aether-crds" // the release of chart crds
)

// Patience is for what Helm waits for.
const Patience = 3 * time.Minute

// Config is what a Release is made from.
type Config struct {
	Cluster  cluster.Cluster
	Root     string    // the repository
	Programs string    // the folder with the built programs
	Probe    string    // the binary of command probe
	Envoy    string    // the binary
	Helm     string    // the binary
	Values   []string  // files of values for chart aether, later ones win
	TakeOver bool      // objects of the chart that Helm did not make become the release's
	Out      io.Writer // what is being done
}

// Release is Aether on a cluster.
type Release struct{ Config }

// New checks c.
func New(c Config) (Release, error) {
	for what, path := range map[string]string{"program": filepath.Join(c.Programs, "aether-controller"), "probe": c.Probe, "Envoy": c.Envoy, "Helm": c.Helm} {
		if info, err := os.Stat(path); err != nil || info.IsDir() {
			return Release{}, fmt.Errorf("%s %q is not there: run make build envoy cluster-programs", what, path)
		}
	}
	return Release{c}, nil
}

// Up installs Aether, or upgrades what there is, and returns when it is ready. Before an error it
// prints the state of its pods.
func (r Release) Up(ctx context.Context) error {
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"load images", r.Load},
		{"apply the Gateway API's definitions", r.GatewayAPI},
		{"make the namespace", r.namespace},
		{"install chart crds", func(ctx context.Context) error {
			return r.Install(ctx, Definitions, filepath.Join(r.Root, "charts/crds"))
		}},
		{"install chart aether", func(ctx context.Context) error {
			return r.Install(ctx, Name, filepath.Join(r.Root, "charts/aether"))
		}},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			fmt.Fprintln(r.Out, r.State(ctx)) // long, so what it was comes last
			return fmt.Errorf("%s: %w", step.name, err)
		}
		if took := time.Since(began); took > time.Second {
			fmt.Fprintf(r.Out, "%s: %.1f s\n", step.name, took.Seconds())
		}
	}
	return nil
}

// GatewayAPI applies the definitions that the build copied from the Gateway API's module.
func (r Release) GatewayAPI(ctx context.Context) error {
	_, err := r.Cluster.Kubectl(ctx, "", "apply", "--server-side", "--force-conflicts", "-f", filepath.Join(r.Root, "internal/crd/gateway-api"))
	if err != nil {
		return err
	}
	_, err = r.Cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all")
	return err
}

const namespaceManifest = `
apiVersion: v1
kind: Namespace
metadata: {name: ` + Namespace + `, labels: {pod-security.kubernetes.io/enforce: restricted}}
`

func (r Release) namespace(ctx context.Context) error {
	_, err := r.Cluster.Kubectl(ctx, namespaceManifest, "apply", "--server-side", "-f", "-")
	return err
}

// Install installs or upgrades a chart with the images of Load and waits until it is ready.
func (r Release) Install(ctx context.Context, name, chart string, args ...string) error {
	all := []string{"upgrade", name, chart, "--install", "--wait", "--timeout", Patience.String()}
	if name == Name {
		images, err := r.Images(ctx)
		if err != nil {
			return err
		}
		all = append(all, images...)
		for _, file := range r.Values {
			all = append(all, "--values", file)
		}
	}
	if r.TakeOver {
		all = append(all, "--take-ownership", "--force-conflicts")
	}
	_, err := r.Helm(ctx, append(all, args...)...)
	return err
}

// Helm runs helm in the namespace, or in another that args name, and returns what it printed; the
// error has what it complained of. It keeps its files in the cluster's folder.
func (r Release) Helm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, r.Config.Helm, append([]string{"--kubeconfig", r.Cluster.Kubeconfig(), "--namespace", Namespace}, args...)...)
	home := filepath.Join(filepath.Dir(r.Cluster.Kubeconfig()), "helm-home")
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// State is what a person would look at when it does not become ready.
func (r Release) State(ctx context.Context) string { return r.StateIn(ctx, Namespace) }

// StateIn is the same of a release in a namespace.
func (r Release) StateIn(ctx context.Context, namespace string) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "pods,services", "--output=wide"},
		{"get", "events", "--field-selector=type=Warning", "--output=custom-columns=OBJECT:.involvedObject.name,TIMES:.count,MESSAGE:.message"},
		{"get", "gateways", "--all-namespaces"},
		{"logs", "--selector=app.kubernetes.io/name=aether", "--all-containers", "--prefix", "--tail=15", "--ignore-errors"},
	} {
		text, err := r.Cluster.Kubectl(ctx, "", append(args, "--namespace="+namespace, "--request-timeout=5s")...)
		fmt.Fprintf(&out, "\n--- kubectl %s\n%s", strings.Join(args, " "), text)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}
