// Package node knows how containerd, kubelet and kube-proxy are started in a machine to
// make it a node of the cluster: their files and their command lines. It starts nothing.
//
// The settings are those of a small machine without systemd and without the privilege to
// lower a process's OOM score: see the comments.
package node

import (
	"embed"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"text/template"

	"aether.io/aether/test/cluster/machine"
	"aether.io/aether/test/cluster/pki"
	"aether.io/aether/test/cluster/supervise"
)

// SandboxImage is the image of what holds a pod's namespaces; it must be imported.
const SandboxImage = "aether.test/pause:1"

// plugins are the CNI plugins that pods' networks are made with, and where Debian has them.
var plugins = []string{"loopback", "ptp", "host-local"}

const pluginDir = "/usr/lib/cni"

//go:embed files
var files embed.FS

// Config is what a node is made from.
type Config struct {
	Machine   machine.Machine
	Program   string // the file with all programs of Kubernetes
	Authority *pki.Authority
	Server    string // the API server's URL

	Name    string
	Address netip.Addr
	Pods    netip.Prefix // the addresses of its pods
	AllPods netip.Prefix // those of all nodes' pods
	DNS     netip.Addr   // the cluster's name server
}

// values is what the files name.
type values struct {
	Config
	CA, Cert, Key, SandboxImage string
}

// Configure adds to the machine's spec what makes it a node.
func (c Config) Configure(spec *machine.Spec) error {
	if err := c.configure(spec); err != nil {
		return fmt.Errorf("prepare node %s: %w", c.Name, err)
	}
	return nil
}

func (c Config) configure(spec *machine.Spec) error {
	// Who the kubelet is decides what the API server lets it read and write.
	subject := pki.Subject{CommonName: "system:node:" + c.Name, Organizations: []string{"system:nodes"}, Hosts: []string{c.Name, c.Address.String()}}
	pair, err := c.Authority.Issue(c.Name, subject)
	if err != nil {
		return err
	}
	conf := filepath.Join(c.Machine.Dir(), "conf")
	if err := os.MkdirAll(conf, 0o700); err != nil {
		return err
	}
	kubelet, proxy := filepath.Join(conf, "kubelet.kubeconfig"), filepath.Join(conf, "kube-proxy.kubeconfig")
	if err := c.Authority.Kubeconfig(kubelet, c.Name, c.Server, subject); err != nil {
		return err
	}
	if err := c.Authority.Kubeconfig(proxy, "kube-proxy", c.Server, pki.Subject{CommonName: "system:kube-proxy"}); err != nil {
		return err
	}
	v := values{Config: c, CA: c.Authority.Pair().CertFile, Cert: pair.CertFile, Key: pair.KeyFile, SandboxImage: SandboxImage}
	spec.Files = map[string]string{}
	for name, target := range map[string]string{
		"containerd.toml": filepath.Join(conf, "containerd.toml"),
		"kubelet.yaml":    filepath.Join(conf, "kubelet.yaml"),
		"kube-proxy.yaml": filepath.Join(conf, "kube-proxy.yaml"),
		"resolv.conf":     c.Machine.Overlay("/etc/resolv.conf"),
		"pods.conflist":   c.Machine.Overlay("/etc/cni/net.d/10-pods.conflist"),
	} {
		if spec.Files[target], err = render(name, v); err != nil {
			return err
		}
	}
	for _, p := range plugins {
		if err := copyProgram(filepath.Join(pluginDir, p), filepath.Join(c.Machine.Overlay("/opt/cni/bin"), p)); err != nil {
			return err
		}
	}
	// They run runc, mount, nft and the like, whatever the caller's path is.
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	spec.Commands = append(spec.Commands,
		supervise.Command{Name: "containerd", Env: env, Args: []string{"containerd", "--config", filepath.Join(conf, "containerd.toml")}},
		supervise.Command{Name: "kubelet", Env: env, Args: []string{
			c.Program, "kubelet",
			"--config=" + filepath.Join(conf, "kubelet.yaml"),
			"--kubeconfig=" + kubelet,
			"--hostname-override=" + c.Name,
			"--node-ip=" + c.Address.String(),
		}},
		supervise.Command{Name: "kube-proxy", Env: env, Args: []string{c.Program, "kube-proxy", "--config=" + filepath.Join(conf, "kube-proxy.yaml")}},
	)
	return nil
}

// render fills in one of the embedded files.
func render(name string, v values) (string, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(files, "files/"+name)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	err = t.Execute(&text, v)
	return text.String(), err
}

// copyProgram copies a file that is not there yet.
func copyProgram(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	tmp := to + ".new"
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return os.Rename(tmp, to)
}
