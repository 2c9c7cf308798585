// Package spire puts SPIRE on the test cluster, as its users have it: server, an agent on each
// node, SPIFFE's driver of volumes. What workloads are, Register tells the server.
package spire

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"aether.io/aether/test/cluster"
	"aether.io/aether/test/cluster/image"
)

const (
	// TrustDomain is that of SPIRE on the test cluster.
	TrustDomain = "spire.test"
	// Namespace is where it runs.
	Namespace = "spire"
	// Values is the file of values by which chart aether uses it, in the repository.
	Values = "test/cluster/spire/values.yaml"
	// patience is for each thing that is waited for.
	patience = 2 * time.Minute
)

//go:embed files/server.yaml
var serverManifest string

//go:embed files/agent.yaml
var agentManifest string

// Config is what a SPIRE is made from.
type Config struct {
	Cluster cluster.Cluster
	Program string        // the binary that build.SPIRE makes
	SVIDTTL time.Duration // how long workloads' SVIDs live; renewed at half. Zero: an hour
	Out     io.Writer     // what is being done
}

// SPIRE is SPIRE on a cluster.
type SPIRE struct {
	Config
	image string
}

// New checks c.
func New(c Config) (*SPIRE, error) {
	if c.SVIDTTL == 0 {
		c.SVIDTTL = time.Hour
	}
	if c.SVIDTTL < time.Second {
		return nil, fmt.Errorf("SVIDs that live %s: SPIRE counts in seconds", c.SVIDTTL)
	}
	f, err := os.Open(c.Program)
	if err != nil {
		return nil, fmt.Errorf("SPIRE's program: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return nil, err
	}
	return &SPIRE{Config: c, image: "aether.test/spire:" + hex.EncodeToString(h.Sum(nil)[:6])}, nil
}

// Up puts it on the cluster, or changes what is there, and returns when each node has an agent
// that the server knows and the driver. An error has the state of its pods.
func (s *SPIRE) Up(ctx context.Context) error {
	timeout := "--timeout=" + patience.String()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"load SPIRE's image", s.load},
		{"apply SPIRE's server", s.apply(serverManifest)},
		{"wait for SPIRE's server", s.kubectl("rollout", "status", "deployment/spire-server", timeout)},
		{"wait for its bundle", s.published},
		{"apply SPIRE's agent", s.apply(agentManifest)},
		{"wait for SPIRE's agents", s.kubectl("rollout", "status", "daemonset/spire-agent", timeout)},
		{"wait for SPIFFE's driver", s.kubectl("rollout", "status", "daemonset/spiffe-csi-driver", timeout)},
		{"wait for the kubelets to have it", s.kubectl("wait", "csinode", "--all", "--for=jsonpath={.spec.drivers[*].name}=csi.spiffe.io", timeout)},
		{"tell it what nodes are", s.registerNodes},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w%s", step.name, err, s.State(ctx))
		}
		if took := time.Since(began); took > time.Second {
			fmt.Fprintf(s.Out, "%s: %.1f s\n", step.name, took.Seconds())
		}
	}
	return nil
}

// Agents ends the agents, or has them run again, and returns when they are gone or ready. The
// driver stays, so pods with its volumes start.
func (s *SPIRE) Agents(ctx context.Context, run bool) error {
	selector, wait := `{"spire.test/agents": "none"}`, []string{"wait", "--for=delete", "pods", "--selector=app=spire-agent"}
	if run {
		selector, wait = "null", []string{"rollout", "status", "daemonset/spire-agent"}
	}
	patch := `{"spec": {"template": {"spec": {"nodeSelector": ` + selector + `}}}}`
	if err := s.kubectl("patch", "daemonset/spire-agent", "--type=merge", "--patch="+patch)(ctx); err != nil {
		return err
	}
	return s.kubectl(append(wait, "--timeout="+patience.String())...)(ctx)
}

// Down removes it. Pods that still have its volumes would not end any more: they go first.
func (s *SPIRE) Down(ctx context.Context) error {
	var errs []error
	for _, manifest := range []string{agentManifest, serverManifest} {
		_, err := s.Cluster.Kubectl(ctx, s.fill(manifest), "delete", "--ignore-not-found", "--timeout="+patience.String(), "-f", "-")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *SPIRE) load(ctx context.Context) error {
	const target = "/usr/local/bin/spire"
	return s.Cluster.Give(ctx, image.Image{Name: s.image, Entrypoint: []string{target}, Files: map[string]string{target: s.Program}})
}

// fill gives a manifest its settings. Pods of other settings are other pods: SPIRE reads its
// file once.
func (s *SPIRE) fill(manifest string) string {
	settings := TrustDomain + " " + s.SVIDTTL.String()
	return strings.NewReplacer("IMAGE", s.image, "TRUST_DOMAIN", TrustDomain, "SVID_TTL", s.SVIDTTL.String(), "SETTINGS", settings).Replace(manifest)
}

func (s *SPIRE) apply(manifest string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Cluster.Kubectl(ctx, s.fill(manifest), "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	}
}

func (s *SPIRE) kubectl(args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.Cluster.Kubectl(ctx, "", append([]string{"--namespace=" + Namespace}, args...)...)
		return err
	}
}

// published waits until what agents will trust is the server's authorities, and not those of
// one before it.
func (s *SPIRE) published(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		want, err := s.Bundle(ctx)
		have, err2 := s.Cluster.Kubectl(ctx, "", "--namespace="+Namespace, "get", "configmap/spire-bundle", "--output=jsonpath={.data.bundle\\.crt}")
		err = errors.Join(err, err2)
		if err == nil && strings.TrimSpace(have) == strings.TrimSpace(want) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, fmt.Errorf("ConfigMap spire-bundle has\n%s\nthe server has\n%s", have, want))
		case <-tick.C:
		}
	}
}

// State is what a person would look at when it does not work.
func (s *SPIRE) State(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	var out strings.Builder
	for _, args := range [][]string{
		{"get", "pods,csinodes", "--output=wide"},
		{"get", "events", "--field-selector=type=Warning", "--output=custom-columns=OBJECT:.involvedObject.name,TIMES:.count,MESSAGE:.message"},
		{"logs", "deployment/spire-server", "--tail=20"},
		{"logs", "daemonset/spire-agent", "--tail=20"},
		{"logs", "daemonset/spiffe-csi-driver", "--all-containers", "--tail=10"},
	} {
		text, err := s.Cluster.Kubectl(ctx, "", append(args, "--namespace="+Namespace, "--request-timeout=5s")...)
		fmt.Fprintf(&out, "\n--- kubectl %s\n%s", strings.Join(args, " "), text)
		if err != nil {
			fmt.Fprintln(&out, err)
		}
	}
	return out.String()
}
