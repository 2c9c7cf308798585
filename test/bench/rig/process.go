package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"aether.io/aether/test/cluster/build"
)

// pod is the proxy's.
const pod = "proxy-1"

// program is a process of ours.
type program struct {
	cmd *exec.Cmd
	log string
}

// run starts a program until Close.
func (r *Rig) run(name string, args ...string) (*program, error) {
	p := &program{cmd: exec.Command(name, args...), log: filepath.Join(r.c.Dir, filepath.Base(name)+".log")}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = p.cmd.Start()
	_ = out.Close() // the process has its own
	if err != nil {
		return nil, err
	}
	r.programs[filepath.Base(name)] = p
	r.stop = append(r.stop, func() {
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // one that is halted does not end
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		force := time.AfterFunc(20*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		force.Stop()
	})
	return p, nil
}

// logs is the ends of what programs said.
func (r *Rig) logs() string {
	var out strings.Builder
	files, _ := filepath.Glob(filepath.Join(r.c.Dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		if filepath.Base(f) != "audit.log" {
			fmt.Fprintf(&out, "--- %s\n%s\n", filepath.Base(f), text[max(0, len(text)-3000):])
		}
	}
	return out.String()
}

func (r *Rig) define(ctx context.Context) error {
	root, err := build.Root(".")
	if err != nil {
		return err
	}
	if _, err := r.server.Kubectl(ctx, "", "apply", "--server-side", "-f", root+"/internal/crd/gateway-api", "-f", root+"/charts/crds/templates"); err != nil {
		return err
	}
	_, err = r.server.Kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=60s", "customresourcedefinition", "--all")
	return err
}

// identities makes what the chart would: the namespace, the account, and a pod of it.
func (r *Rig) identities(ctx context.Context) error {
	if err := r.namespace(ctx, release); err != nil {
		return err
	}
	if _, err := r.API.Core.ServiceAccounts(release).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := r.API.Core.Pods(release).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: pod},
		Spec: corev1.PodSpec{
			ServiceAccountName: account, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
		},
	}, metav1.CreateOptions{})
	return err
}

func (r *Rig) namespace(ctx context.Context, name string) error {
	_, err := r.API.Core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func (r *Rig) processes(ctx context.Context) error {
	kubeconfig, err := r.server.As(controller)
	if err != nil {
		return err
	}
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	stream, boot := strconv.Itoa(ports[0]), strconv.Itoa(ports[1])
	inspect := strconv.Itoa(ports[2])
	run, err := r.run(filepath.Join(r.c.Programs, "aether-controller"), "--kubeconfig="+kubeconfig, "--release-namespace="+release,
		"--discovery-bind=127.0.0.1", "--discovery-port="+stream, "--discovery-bootstrap-port="+boot, "--inspect-port="+inspect)
	if err != nil {
		return err
	}
	r.controller = process{pid: run.cmd.Process.Pid, metrics: net.JoinHostPort("127.0.0.1", inspect)}
	r.stream, r.boot = stream, boot
	bundle, err := r.bundle(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.c.Dir, "ca.crt"), []byte(bundle), 0o600); err != nil {
		return err
	}
	return r.proxy(ctx, pod, r.c.Dir)
}

// AddProxy starts another proxy with its Envoy, whose admin interface EnvoyOf asks. Signals
// go to it from then on.
func (r *Rig) AddProxy(ctx context.Context, name string) error {
	dir := filepath.Join(r.c.Dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	return r.proxy(ctx, name, dir)
}

// proxy starts a proxy and an Envoy, with all files in a folder.
func (r *Rig) proxy(ctx context.Context, name, dir string) error {
	token, err := r.token(ctx, name, name != pod)
	if err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("token"), []byte(token), 0o600); err != nil {
		return err
	}
	if _, err := r.run(filepath.Join(r.c.Programs, "aether-proxy"),
		"--discovery-endpoint=https://127.0.0.1:"+r.stream, "--discovery-bootstrap-endpoint=https://127.0.0.1:"+r.boot,
		"--discovery-sa-token-path="+in("token"), "--discovery-ca-bundle-path="+filepath.Join(r.c.Dir, "ca.crt"),
		"--discovery-server-id=spiffe://cluster.local/ns/"+release+"/sa/aether-controller", "--proxy-id="+name, "--scope=shared",
		"--xds-socket="+in("xds.sock"), "--envoy-admin-socket="+in("admin.sock"), "--envoy-bootstrap="+in("envoy.json"),
		"--last-good-dir="+in("last-good"), "--inspect-socket="+in("proxy.sock")); err != nil {
		return err
	}
	if err := await(ctx, "Envoy's bootstrap", func(context.Context) bool { _, err := os.Stat(in("envoy.json")); return err == nil }); err != nil {
		return err
	}
	_, err = r.run(r.c.Envoy, "--config-path", in("envoy.json"), "--log-level", "warn", "--concurrency", "2", "--disable-hot-restart")
	return err
}

func (r *Rig) bundle(ctx context.Context) (text string, err error) {
	err = await(ctx, "the trust bundle", func(ctx context.Context) bool {
		m, err := r.API.Core.ConfigMaps(release).Get(ctx, "coxswain-discovery-trust", metav1.GetOptions{})
		if err != nil {
			return false
		}
		text = m.Data["ca.crt"]
		return text != ""
	})
	return text, err
}

// freePorts are ports of loopback that nobody has at the moment.
func freePorts(n int) ([]int, error) {
	var out []int
	var held []net.Listener // until all are found, so that they differ
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out, nil
}
