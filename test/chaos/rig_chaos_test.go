//go:build cluster

package chaos_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/cluster"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/machine"
	"aether.io/aether/test/cluster/network"
	"aether.io/aether/test/cluster/release"
)

// patience is for each thing that is waited for, faults not counted.
const patience = 90 * time.Second

var (
	previous = flag.String("previous", "HEAD~1", "the revision that is upgraded from")
	keep     = flag.String("keep", "", "the folder of a cluster that is used, made if need be, and left as it is")
)

func TestMain(m *testing.M) {
	cluster.Main()
	os.Exit(m.Run())
}

// rig is a cluster with Aether on it, as one test or subtest has it.
type rig struct {
	*testing.T
	root    string
	cluster cluster.Cluster
	now     release.Release // of this tree
	routes  *int            // made so far, to see whether the system works
}

// on is the rig of a subtest.
func (r *rig) on(t *testing.T) *rig {
	s := *r
	s.T = t
	return &s
}

// newRig makes a cluster with nothing on it. Not while another is up.
func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Config{Root: root, Dir: filepath.Join(t.TempDir(), "c"), Nodes: 1, Out: os.Stderr}
	if *keep != "" {
		config.Dir = *keep
	}
	c, err := cluster.In(config.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if *keep == "" {
		t.Cleanup(func() {
			if err := c.Down(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	if err := cluster.Up(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	helm, err := build.Helm(root).Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := build.Tool(root, "probe")
	if err != nil {
		t.Fatal(err)
	}
	now, err := release.New(release.Config{
		Cluster: c, Root: root, Programs: filepath.Join(root, "bin"), Probe: probe, Helm: helm,
		Envoy: os.Getenv("AETHER_ENVOY"), Values: []string{filepath.Join(root, "test/chaos/testdata/values.yaml")}, Out: os.Stderr,
	})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{T: t, root: root, cluster: c, now: now, routes: new(int)}
}

// before is the release of the previous revision: its charts, and programs that are built
// from it.
func (r *rig) before() release.Release {
	r.Helper()
	dir := r.TempDir()
	script := "set -o pipefail; git -C \"$1\" archive \"$2\" | tar -x -C \"$3\" && make -C \"$3\" build VERSION=previous"
	cmd := exec.CommandContext(r.Context(), "bash", "-c", script, "bash", r.root, *previous, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		r.Fatalf("make revision %s (-previous names another): %v\n%s", *previous, err, out)
	}
	old := r.now
	old.Root, old.Programs = dir, filepath.Join(dir, "bin")
	return old
}

// node is where everything runs.
func (r *rig) node() machine.Machine { return r.cluster.Node(network.Node(1)) }

func (r *rig) kubectl(input string, args ...string) string {
	r.Helper()
	out, err := r.cluster.Kubectl(r.Context(), input, args...)
	if err != nil {
		r.fatal(err)
	}
	return strings.TrimSpace(out)
}

// field is a field of an object by its JSON path; empty if there is no such object or
// nothing that would know.
func (r *rig) field(ctx context.Context, object, namespace, path string) string {
	args := []string{"get", object, "--output=jsonpath=" + path, "--request-timeout=5s"}
	if namespace != "" {
		args = append(args, "--namespace="+namespace)
	}
	out, err := r.cluster.Kubectl(ctx, "", args...)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(out)
}

// eventually waits until is returns nil.
func (r *rig) eventually(what string, is func(context.Context) error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var last error // but for that of an attempt which was cut short
	for {
		err := is(ctx)
		if err == nil {
			return
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			r.fatal(fmt.Errorf("%s: not after %s: %w", what, patience, last))
		case <-tick.C:
		}
	}
}

// want is an error if got is another.
func want(got, want string) error {
	if got != want {
		return fmt.Errorf("it is %q, want %q", got, want)
	}
	return nil
}

// fatal ends the test with the state of things.
func (r *rig) fatal(err error) {
	r.Helper()
	programs, programsErr := r.node().Programs(context.WithoutCancel(r.Context()))
	var tenants strings.Builder
	for _, tenant := range []string{stays, goes} {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
		text, textErr := r.cluster.Kubectl(ctx, "", "get", "pods,endpointslices,httproutes,gateways", "--namespace="+tenant, "--output=wide", "--request-timeout=5s")
		cancel()
		fmt.Fprintf(&tenants, "\n--- %s: %v\n%s", tenant, textErr, text)
	}
	r.Fatalf("%v\n--- programs: %+v, %v%s%s", err, programs, programsErr, tenants.String(), r.now.State(r.Context()))
}

// ask is a GET's answer; an error if there is none.
func (r *rig) ask(ctx context.Context, url, host string) (int, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	req.Host, req.Close = host, true
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// answers waits until a host at the address is answered with the code.
func (r *rig) answers(address, host string, code int) {
	r.Helper()
	r.eventually(fmt.Sprintf("%s at %s answers %d", host, address, code), func(ctx context.Context) error {
		got, body, err := r.ask(ctx, "http://"+address+"/", host)
		if err == nil && got != code {
			err = fmt.Errorf("it answers %d: %.80s", got, body)
		}
		return err
	})
}

// says waits until the page of a pod has the text.
func (r *rig) says(address, path, text string) {
	r.Helper()
	r.eventually(fmt.Sprintf("%s%s says %s", address, path, text), func(ctx context.Context) error {
		_, body, err := r.ask(ctx, "http://"+address+path, "")
		if err == nil && !strings.Contains(body, text) {
			err = errors.New(body)
		}
		return err
	})
}

// positive waits until a pod's metric without labels is more than nothing.
func (r *rig) positive(pod, metric string) {
	r.Helper()
	r.eventually(metric+" of "+pod, func(ctx context.Context) error {
		_, page, err := r.ask(ctx, "http://"+pod+":8080/metrics", "")
		if err != nil {
			return err
		}
		_, rest, there := strings.Cut(page, "\n"+metric+" ")
		value, _, _ := strings.Cut(rest, "\n")
		if !there || value == "0" {
			return fmt.Errorf("it is %q", value)
		}
		return nil
	})
}

// tells waits until aetherctl status has the text.
func (r *rig) tells(text string) {
	r.Helper()
	r.eventually("aetherctl status says "+text, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, filepath.Join(r.root, "bin/aetherctl"), "status", "--kubeconfig="+r.cluster.Kubeconfig())
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), text) {
			return fmt.Errorf("%w: %s", err, out)
		}
		r.Logf("aetherctl status, %v:\n%s", err, out)
		return nil
	})
}
