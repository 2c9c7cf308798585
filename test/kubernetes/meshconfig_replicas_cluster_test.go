//go:build cluster

package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// front is what the discovery Service is to proxies: connections go to one of those that are
// behind it, and to another when it has ended.
type front struct {
	listener net.Listener
	mu       sync.Mutex // guards to
	to       string
	open     sync.WaitGroup // connections
}

// newFront forwards connections until the test ends.
func (r *rig) newFront(port int) *front {
	r.Helper()
	l, err := net.Listen("tcp", r.at(0))
	if err != nil {
		r.Fatal(err)
	}
	f := &front{listener: l, to: r.at(port)}
	f.open.Go(func() {
		for { // Exits: the listener is closed.
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.open.Go(func() { f.forward(r.Context(), c) })
		}
	})
	r.Cleanup(func() {
		_ = l.Close()
		f.open.Wait()
	})
	return f
}

func (f *front) port() int { return f.listener.Addr().(*net.TCPAddr).Port }

func (f *front) turn(to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.to = to
}

// forward returns when either end has closed, or the test ends.
func (f *front) forward(ctx context.Context, in net.Conn) {
	defer in.Close()
	f.mu.Lock()
	to := f.to
	f.mu.Unlock()
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })()
	defer out.Close()
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		f.open.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		})
	}
	<-done
}

// beside is a rig on the same API server for another proxy.
func (r *rig) beside(stream, boot int) *rig {
	r.Helper()
	dir, err := os.MkdirTemp("", "ak") // short: sockets are in it
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Link(filepath.Join(r.dir, proxyProgram), filepath.Join(dir, proxyProgram)); err != nil {
		r.Fatal(err)
	}
	other := *r
	other.dir, other.stream, other.boot = dir, stream, boot
	return &other
}

// sharedProxy makes a pod of the shared proxies that runs, as its kubelet would say.
func (r *rig) sharedProxy(name string) {
	r.Helper()
	p, err := r.core.Pods(namespace).Create(r.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/component": "shared-proxy"}},
		Spec:       corev1.PodSpec{ServiceAccountName: account, AutomountServiceAccountToken: new(bool), Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	if err != nil {
		r.Fatal(err)
	}
	p.Status.Phase = corev1.PodRunning
	if _, err := r.core.Pods(namespace).UpdateStatus(r.Context(), p, metav1.UpdateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// replicaSlice is what the cluster says of the pods behind the discovery Service.
func replicaSlice(pods ...string) string {
	var endpoints []string
	for i, name := range pods {
		endpoints = append(endpoints, fmt.Sprintf(`{addresses: [10.9.9.%d], conditions: {ready: true}, targetRef: {kind: Pod, namespace: %s, name: %q}}`, i+1, namespace, name))
	}
	return fmt.Sprintf(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: discovery-1, namespace: %s, labels: {kubernetes.io/service-name: coxswain-controller-discovery}}
addressType: IPv4
ports: [{port: 50051}]
endpoints: [%s]
`, namespace, strings.Join(endpoints, ", "))
}

// Of two replicas the one that leads does not know what the other's proxies run, and says so
// rather than that they lag; when it is the only one it does know.
func TestAMeshConfigIsPartlySeenWhileThereAreTwoReplicas(t *testing.T) {
	r := newRig(t)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	r.kubectl(objects, "create", "-f", "-")
	r.kubectl("", "delete", "pod", "proxy-1", "-n", namespace, "--grace-period=0", "--force")
	r.kubectl(replicaSlice(host, "the-other"), "create", "-f", "-") // each takes its host for its pod
	leads, follows := r.leader(r.startReplica("controller-a"), r.startReplica("controller-b"))
	for _, c := range []*replica{leads, follows} {
		r.eventually(c.name+" is ready", c.ready)
	}
	says := func(when, want string) {
		t.Helper()
		r.eventually(when+", want "+want, func(context.Context) bool { return r.jsonpath("meshconfig", namespace, "default", applied) == want })
	}
	connected := func(c *replica) {
		t.Helper()
		r.eventually("a proxy of "+c.name, func(ctx context.Context) bool {
			return strings.Contains(c.page(ctx, c.metrics, "/metrics"), `coxswain_discovery_connected_clients{scope="SharedPool"} 1`)
		})
	}
	stream, boot := r.newFront(follows.stream), r.newFront(follows.boot)
	for _, name := range []string{"proxy-a", "proxy-b"} {
		r.sharedProxy(name)
	}
	r.beside(leads.stream, leads.boot).startProxy("proxy-a")
	connected(leads)
	r.beside(stream.port(), boot.port()).startProxy("proxy-b")
	connected(follows)

	r.kubectl(fmt.Sprintf(meshConfig, namespace, 10), "apply", "-f", "-")
	says("what the other's proxy runs is not known", "1 Unknown PartlySeen 1 10 "+namespace+"/default 1/2")
	r.kubectl(fmt.Sprintf(meshConfig, namespace, 20), "apply", "-f", "-")
	says("nor after an edit", "2 Unknown PartlySeen 2 20 "+namespace+"/default 1/2")
	message := r.jsonpath("meshconfig", namespace, "default", `{.status.conditions[?(@.type=="Applied")].message}`)
	if want := "1 of 2 proxies are known to run it; 1 are not connected to the controller that writes this"; !strings.HasPrefix(message, want) {
		t.Errorf("it says %q, want %q", message, want)
	}

	stream.turn(r.at(leads.stream))
	boot.turn(r.at(leads.boot))
	if err := follows.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := follows.cmd.Wait(); err != nil {
		t.Errorf("%s ended with %v", follows.name, err)
	}
	r.kubectl(replicaSlice(host), "apply", "-f", "-")
	says("its proxy has come", "2 True Applied 2 20 "+namespace+"/default 2/2")
	r.kubectl(fmt.Sprintf(meshConfig, namespace, 30), "apply", "-f", "-")
	says("both follow an edit", "3 True Applied 3 30 "+namespace+"/default 2/2")
}
