package cluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"aether.io/aether/test/cluster/image"
	"aether.io/aether/test/cluster/network"
	"aether.io/aether/test/cluster/node"
)

// patience is for each thing that is waited for. On two busy cores, a cold start takes a
// minute in all.
const patience = 3 * time.Minute

//go:embed files/dns.yaml
var dnsManifest string

const dnsImage = "aether.test/coredns:1"

func (u *up) apiServer(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) error {
		_, err := u.Kubectl(ctx, "", "get", "--raw=/readyz")
		return err
	})
}

// images gives the nodes what the cluster itself runs.
func (u *up) images(ctx context.Context) error {
	for _, img := range []image.Image{
		{Name: node.SandboxImage, Entrypoint: []string{"/pause"}, User: "65535:65535", Files: map[string]string{"/pause": u.pause}},
		{Name: dnsImage, Entrypoint: []string{"/coredns"}, Files: map[string]string{"/coredns": u.coreDNS}},
	} {
		if err := u.Give(ctx, img); err != nil {
			return err
		}
	}
	return nil
}

// Give makes an image and imports it into the nodes that have none of that name. Pods that
// name it need the image pull policy IfNotPresent.
func (c Cluster) Give(ctx context.Context, img image.Image) error {
	archive := c.path("image-" + strconv.Itoa(os.Getpid()) + ".tar")
	defer os.Remove(archive)
	made := false
	for _, n := range c.nodes() {
		var have string
		err := await(ctx, func(ctx context.Context) (err error) {
			have, err = c.ctr(ctx, n, nil, "images", "list", "-q")
			return err
		})
		if err != nil {
			return err
		}
		if strings.Contains("\n"+have, "\n"+img.Name+"\n") {
			continue
		}
		if !made {
			if err := img.Write(archive); err != nil {
				return err
			}
			made = true
		}
		if err := c.load(ctx, n, archive); err != nil {
			return err
		}
	}
	return nil
}

// Pin gives an image that the nodes have, by its full reference, the name that it has by
// digest, and returns the digest: as if it had been pulled by that.
func (c Cluster) Pin(ctx context.Context, name string) (digest string, err error) {
	repository, _, _ := strings.Cut(name, ":")
	for _, n := range c.nodes() {
		list, err := c.ctr(ctx, n, nil, "images", "list", "name=="+name)
		if err != nil {
			return "", err
		}
		_, row, _ := strings.Cut(list, "\n") // below the heads of the columns
		if fields := strings.Fields(row); len(fields) > 2 && strings.HasPrefix(fields[2], "sha256:") {
			digest = fields[2] // the same on all: what is given to one is given to all
		} else {
			return "", fmt.Errorf("%s has no image %s: %q", n.Name(), name, list)
		}
		if _, err := c.ctr(ctx, n, nil, "images", "tag", "--force", name, repository+"@"+digest); err != nil {
			return "", fmt.Errorf("name image %s of %s by its digest: %w", name, n.Name(), err)
		}
	}
	return digest, nil
}

// Load imports OCI archives into all nodes. Pods that name them need the image pull policy
// IfNotPresent.
func (c Cluster) Load(ctx context.Context, archives ...string) error {
	nodes := c.nodes()
	if len(nodes) == 0 {
		return fmt.Errorf("there is no cluster in %s", c.dir)
	}
	for _, archive := range archives {
		for _, n := range nodes {
			if err := c.load(ctx, n, archive); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c Cluster) load(ctx context.Context, n network.Node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := c.ctr(ctx, n, f, "images", "import", "-"); err != nil {
		return fmt.Errorf("load %s into %s: %w", archive, n.Name(), err)
	}
	return nil
}

// ctr runs containerd's client on the node.
func (c Cluster) ctr(ctx context.Context, n network.Node, stdin *os.File, args ...string) (string, error) {
	cmd, err := c.Node(n).Exec(ctx, append([]string{"ctr", "--namespace=k8s.io"}, args...)...)
	if err != nil {
		return "", err
	}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	return output(cmd)
}

// Kubectl runs kubectl as the administrator with the input and returns what it printed;
// the error has what it complained of.
func (c Cluster) Kubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.path("kubectl"), append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	return output(cmd)
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return stdout.String(), nil
}

// dns applies the name server's manifest; roles and priorities that it needs are made by
// the API server soon after it is ready.
func (u *up) dns(ctx context.Context) error {
	manifest := strings.NewReplacer("IMAGE", dnsImage, "ADDRESS", network.DNS.String()).Replace(dnsManifest)
	return await(ctx, func(ctx context.Context) error {
		_, err := u.Kubectl(ctx, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-")
		return err
	})
}

func (u *up) ready(ctx context.Context) error {
	gone := []string{"delete", "--ignore-not-found", "node"}
	for n := network.Node(u.Nodes + 1); n <= network.MaxNodes; n++ {
		gone = append(gone, n.Name())
	}
	if u.Nodes < network.MaxNodes {
		if _, err := u.Kubectl(ctx, "", gone...); err != nil {
			return err
		}
	}
	timeout := "--timeout=" + patience.String()
	for n := network.Node(1); int(n) <= u.Nodes; n++ {
		for _, condition := range []string{"create", "condition=Ready"} {
			if _, err := u.Kubectl(ctx, "", "wait", "--for="+condition, "node/"+n.Name(), timeout); err != nil {
				return err
			}
		}
	}
	if _, err := u.Kubectl(ctx, "", "rollout", "status", "--namespace=kube-system", "deployment/coredns", timeout); err != nil {
		return err
	}
	// After a start anew, statuses may be those of before. A name that is answered at the
	// Service's address has passed through everything that there is.
	return await(ctx, func(ctx context.Context) error {
		_, err := resolver.LookupNetIP(ctx, "ip4", "kubernetes.default.svc.cluster.local.")
		return err
	})
}

// resolver asks the cluster's name server.
var resolver = &net.Resolver{
	PreferGo: true,
	Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return (&net.Dialer{}).DialContext(ctx, "udp", netip.AddrPortFrom(network.DNS, 53).String())
	},
}

// await tries until there is no error, which it returns when patience is over.
func await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// state is what a person would look at when the cluster does not come up.
func (u *up) state() string {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var out strings.Builder
	for _, n := range u.nodes() {
		programs, err := u.Node(n).Programs(ctx)
		if err != nil {
			fmt.Fprintf(&out, "\n--- %s: %v\n%s", n.Name(), err, tail(u.Node(n).Log("machine"), 15))
			continue
		}
		for _, p := range programs {
			fmt.Fprintf(&out, "\n--- %s on %s: process %d, start %d", p.Name, n.Name(), p.PID, p.Starts)
			if p.PID == 0 || p.Starts > 1 {
				fmt.Fprintf(&out, "\n%s", tail(u.Node(n).Log(p.Name), 15))
			}
		}
	}
	for _, args := range [][]string{
		{"get", "nodes,pods", "--all-namespaces", "--output=wide"},
		{"get", "events", "--all-namespaces", "--field-selector=type=Warning", "--output=custom-columns=OBJECT:.involvedObject.name,MESSAGE:.message"},
	} {
		text, err := u.Kubectl(ctx, "", append(args, "--request-timeout=5s")...)
		if err == nil {
			fmt.Fprintf(&out, "\n--- kubectl %s\n%s", strings.Join(args, " "), text)
		}
	}
	fmt.Fprintf(&out, "\n--- logs: %s", filepath.Join(u.dir, "node-*", "logs"))
	return out.String()
}

// tail is the last lines of a file.
func tail(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
