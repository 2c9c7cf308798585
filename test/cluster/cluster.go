// Package cluster makes a real Kubernetes cluster on this computer: stock programs built
// from their Go modules, one or more nodes with stock containerd, pods with addresses, DNS,
// Services of all types. It is for tests; it needs root, and nothing that is left after
// Down tells that it was there but the packages it installed and the cache.
//
// Each node is a machine of package machine. The control plane and the balancer run on the
// first. The folder of a cluster has:
//
//	kubeconfig   the administrator's
//	kubectl      a command
//	pki/         certificates
//	control/     etcd's data, the audit log
//	node-N/      a machine, with logs/ of its programs
package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/controlplane"
	"aether.io/aether/test/cluster/machine"
	"aether.io/aether/test/cluster/network"
	"aether.io/aether/test/cluster/node"
	"aether.io/aether/test/cluster/pki"
	"aether.io/aether/test/cluster/supervise"
)

const (
	apiPort  = 6443
	etcdPort = 2379
)

// Config is what a cluster is made from.
type Config struct {
	Root  string    // the repository
	Dir   string    // the cluster's folder
	Nodes int       // 1 to network.MaxNodes
	Out   io.Writer // what is being done
}

// Cluster is a cluster by its folder.
type Cluster struct{ dir string }

// In returns the cluster whose folder is dir, running or not.
func In(dir string) (Cluster, error) {
	abs, err := filepath.Abs(dir)
	return Cluster{abs}, err
}

func (c Cluster) path(name string) string { return filepath.Join(c.dir, name) }

// Kubeconfig is the file of the administrator's kubeconfig.
func (c Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// AuditLog is the file in which the API server notes who wrote what.
func (c Cluster) AuditLog() string { return c.path("control/audit.log") }

// Node is the machine of a node. The first also has the control plane, whose programs have
// their usual names.
func (c Cluster) Node(n network.Node) machine.Machine { return machine.In(c.path(n.Name())) }

// nodes are the machines that there are, by the folders.
func (c Cluster) nodes() (out []network.Node) {
	for n := network.Node(1); n <= network.MaxNodes; n++ {
		if _, err := os.Stat(c.path(n.Name())); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// Up makes the cluster, or what is missing of it, and returns when its nodes and its name
// server are ready. What runs and is as it should be is left alone. An error has the
// state of things. The caller is a program that begins with Main.
func Up(ctx context.Context, config Config) error {
	c, err := In(config.Dir)
	if err != nil {
		return err
	}
	if config.Nodes < 1 || config.Nodes > network.MaxNodes {
		return fmt.Errorf("%d nodes: want 1 to %d", config.Nodes, network.MaxNodes)
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	u := &up{Config: config, Cluster: c}
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"install Debian packages", u.install},
		{"build programs", u.build},
		{"lay the network", u.network},
		{"start machines", u.machines},
		{"wait for the API server", u.apiServer},
		{"import images", u.images},
		{"start the name server", u.dns},
		{"wait for nodes and the name server", u.ready},
	} {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w%s", step.name, err, u.state())
		}
		if took := time.Since(began); took > time.Second {
			fmt.Fprintf(u.Out, "%s: %.1f s\n", step.name, took.Seconds())
		}
	}
	return nil
}

// up is one call of Up.
type up struct {
	Config
	Cluster
	kubernetes, coreDNS, pause string // files
}

func (u *up) build(ctx context.Context) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	if u.kubernetes, err = build.Kubernetes(u.Root).Make(ctx, cache, u.Out); err != nil {
		return err
	}
	if u.coreDNS, err = build.CoreDNS(u.Root).Make(ctx, cache, u.Out); err != nil {
		return err
	}
	u.pause, err = build.Tool(u.Root, "pause")
	return err
}

// network takes it from a cluster that is no more.
func (u *up) network(ctx context.Context) error {
	owner, err := network.Owner(ctx)
	if err != nil {
		return err
	}
	if owner != "" && owner != u.dir && !(Cluster{owner}).runs() {
		if err := network.Remove(ctx, owner); err != nil {
			return err
		}
	}
	return network.Create(ctx, u.dir)
}

// runs reports whether any machine of the cluster runs.
func (c Cluster) runs() bool {
	for _, n := range c.nodes() {
		if p, err := c.Node(n).Process(); err != nil || p.PID != 0 {
			return true
		}
	}
	return false
}

func (u *up) machines(ctx context.Context) error {
	authority, err := pki.Open(u.path("pki"))
	if err != nil {
		return err
	}
	plane, err := controlplane.New(controlplane.Config{
		Program: u.kubernetes, Dir: u.path("control"), Authority: authority,
		Address: network.Node(1).Address(), Port: apiPort, EtcdPort: etcdPort, Services: network.Services, Nodes: true,
	})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, n := range u.nodes() {
		if int(n) > u.Nodes {
			if err := u.Node(n).Remove(ctx); err != nil {
				return err
			}
		}
	}
	for n := network.Node(1); int(n) <= u.Nodes; n++ {
		spec := machine.Spec{Name: n.Name()}
		if n == 1 {
			lb := supervise.Command{Name: balancerName, Args: []string{self, balancerName, plane.Admin}}
			spec.Commands = []supervise.Command{plane.Etcd, plane.APIServer, plane.ControllerManager, plane.Scheduler, lb}
		}
		err := node.Config{
			Machine: u.Node(n), Program: u.kubernetes, Authority: authority, Server: plane.Server,
			Name: n.Name(), Address: n.Address(), Pods: n.Pods(), AllPods: network.Pods, DNS: network.DNS,
		}.Configure(&spec)
		if err != nil {
			return err
		}
		attach := func(pid int) error { return n.Attach(ctx, pid) }
		if err := u.Node(n).Start(ctx, spec, attach); err != nil {
			return err
		}
	}
	return u.publish(plane.Admin)
}

// publish puts what people use where they look for it.
func (u *up) publish(admin string) error {
	text, err := os.ReadFile(admin)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(u.Kubeconfig(), text, 0o600); err != nil {
		return err
	}
	return u.Offer("kubectl", u.kubernetes)
}

// Offer puts a program, by a name, beside the kubeconfig, where people have it in their PATH.
func (c Cluster) Offer(name, program string) error {
	link := c.path(name)
	if now, err := os.Readlink(link); err == nil && now == program {
		return nil
	}
	return errors.Join(os.RemoveAll(link), os.Symlink(program, link))
}

// Down removes the cluster with everything in it. It is no error if there is none.
func (c Cluster) Down(ctx context.Context) error {
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, n := range c.nodes() {
		if err := c.Node(n).Remove(ctx); err != nil {
			return err
		}
	}
	if err := network.Remove(ctx, c.dir); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(c.dir), os.Remove(c.dir+".lock"))
}

// lock waits until nobody else makes or removes the cluster. The file is beside its
// folder, which comes and goes.
func (c Cluster) lock() (unlock func(), err error) {
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return nil, err
	}
	for {
		f, err := os.OpenFile(c.dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock the cluster: %w", err), f.Close())
		}
		// Down may have removed the file while we waited: then that was no lock.
		held, err := f.Stat()
		if now, statErr := os.Stat(c.dir + ".lock"); err == nil && statErr == nil && os.SameFile(held, now) {
			return func() { _ = f.Close() }, nil
		}
		_ = f.Close()
	}
}
