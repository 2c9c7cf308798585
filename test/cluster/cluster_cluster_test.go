//go:build cluster

package cluster_test

import (
	"bytes"
	"context"
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
	"aether.io/aether/test/cluster/image"
	"aether.io/aether/test/cluster/network"
)

func TestMain(m *testing.M) {
	cluster.Main()
	os.Exit(m.Run())
}

const workload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: answer}
spec:
  replicas: 2
  selector: {matchLabels: {app: answer}}
  template:
    metadata: {labels: {app: answer}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: answer
          image: example.test/probe:1
          imagePullPolicy: IfNotPresent
          args: [serve, ":8080"]
          readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}
          securityContext: {runAsNonRoot: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata: {name: answer}
spec:
  type: LoadBalancer
  selector: {app: answer}
  ports: [{port: 80, targetPort: 8080}]
`

const client = `
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  restartPolicy: OnFailure
  containers:
    - {name: client, image: "example.test/probe:1", imagePullPolicy: IfNotPresent, args: [get, "http://answer.default.svc.cluster.local/"]}
`

// rig is a cluster that the test makes, removes and looks at. Not while another is up.
type rig struct {
	testing.TB
	cluster.Cluster
	config cluster.Config
}

func newRig(t *testing.T) *rig {
	t.Helper()
	root, err := build.Root(".")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{TB: t, config: cluster.Config{Root: root, Dir: filepath.Join(t.TempDir(), "c"), Nodes: 1, Out: os.Stderr}}
	if r.Cluster, err = cluster.In(r.config.Dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) up() {
	r.Helper()
	if err := cluster.Up(r.Context(), r.config); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) kubectl(input string, args ...string) string {
	r.Helper()
	out, err := r.Kubectl(r.Context(), input, args...)
	if err != nil {
		pods, _ := r.Kubectl(r.Context(), "", "get", "pods,services,events", "--all-namespaces", "--output=wide")
		r.Fatalf("%v\n%s", err, pods)
	}
	return out
}

// answers asks the Service at its LoadBalancer address, from this computer, until it answers.
func (r *rig) answers() string {
	r.Helper()
	r.kubectl("", "rollout", "status", "deployment/answer", "--timeout=120s")
	r.kubectl("", "wait", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}", "service/answer", "--timeout=60s")
	address := r.kubectl("", "get", "service", "answer", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.After(time.Minute)
	for {
		resp, err := client.Get("http://" + address)
		if err == nil {
			text, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			return string(text)
		}
		select {
		case <-deadline:
			r.Fatalf("no answer from %s: %v", address, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// footprint is what the cluster could leave on this computer.
func (r *rig) footprint(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	for _, command := range []string{
		"cat /proc/self/mounts",
		"ip -brief link", "ip route", "ip -6 route | grep -v ' expires '", "nft list tables", "ip netns list",
		"find /sys/fs/cgroup -name 'aether*' -o -name 'k8s.io*'",
		"ls /etc/cni /opt /var/lib/kubelet /run/containerd /var/log/pods 2>&1",
		"grep -l /aether-node- /proc/[0-9]*/cgroup",
		"ps -eo args= | grep -F " + r.config.Dir + "/ | grep -v grep",
		"sysctl net.ipv4.ip_forward vm.overcommit_memory kernel.panic kernel.panic_on_oops net.netfilter.nf_conntrack_max",
	} {
		text, _ := exec.CommandContext(t.Context(), "sh", "-c", command).CombinedOutput()
		fmt.Fprintf(&out, "$ %s\n%s", command, text)
	}
	return out.String()
}

func TestACluster(t *testing.T) {
	r := newRig(t)
	before := r.footprint(t)
	r.up()

	probe, err := build.Tool(r.config.Root, "probe")
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(t.TempDir(), "probe.tar")
	err = image.Image{
		Name: "example.test/probe:1", Entrypoint: []string{"/probe"}, User: "65532",
		Files: map[string]string{"/probe": probe},
	}.Write(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	r.kubectl(workload, "apply", "-f", "-")
	if got := r.answers(); !strings.HasPrefix(got, "answer-") {
		t.Errorf("the LoadBalancer's address answers %q", got)
	}
	r.kubectl(client, "apply", "-f", "-")
	r.kubectl("", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/client", "--timeout=120s")
	if got := r.kubectl("", "logs", "client"); !strings.HasPrefix(got, "answer-") {
		t.Errorf("by its name, from a pod, it answers %q", got)
	}

	t.Run("that is up stays as it is", func(t *testing.T) {
		was, err := r.Node(1).Process()
		if err != nil {
			t.Fatal(err)
		}
		r.up()
		if now, err := r.Node(1).Process(); err != nil || now != was {
			t.Errorf("the first node is another: %v, %v", now, err)
		}
	})
	t.Run("outlives its programs", func(t *testing.T) {
		for _, name := range []string{"etcd", "kube-apiserver", "kubelet", "kube-proxy", "containerd"} {
			if err := r.Node(1).KillProgram(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		r.up()
		if got := r.answers(); !strings.HasPrefix(got, "answer-") {
			t.Errorf("it answers %q", got)
		}
	})
	t.Run("comes up again after its machine was killed", func(t *testing.T) {
		p, err := r.Node(network.Node(1)).Process()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(9); err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.up()
		r.kubectl("", "delete", "pod", "client", "--ignore-not-found")
		r.kubectl(client, "apply", "-f", "-")
		r.kubectl("", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/client", "--timeout=180s")
		if got := r.answers(); !strings.HasPrefix(got, "answer-") {
			t.Errorf("it answers %q", got)
		}
	})
	t.Run("gets a second node and loses it", func(t *testing.T) {
		was, err := r.Node(1).Process()
		if err != nil {
			t.Fatal(err)
		}
		r.config.Nodes = 2
		r.up()
		if err := r.Load(t.Context(), archive); err != nil {
			t.Fatal(err)
		}
		r.kubectl("", "delete", "pod", "client")
		r.kubectl(strings.Replace(client, "spec:", "spec:\n  nodeName: node-2", 1), "apply", "-f", "-")
		r.kubectl("", "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/client", "--timeout=120s")
		r.config.Nodes = 1
		r.up()
		if got := r.kubectl("", "get", "nodes", "-o", "name"); got != "node/node-1\n" {
			t.Errorf("nodes are %s", got)
		}
		if now, err := r.Node(1).Process(); err != nil || now != was {
			t.Errorf("the first node is another: %v, %v", now, err)
		}
	})
	if err := r.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	if now := r.footprint(t); now != before {
		t.Errorf("left:\n%s\nwas:\n%s", now, before)
	}
	if err := r.Down(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
