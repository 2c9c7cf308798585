package rig

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/test/cluster"
)

const (
	// metricsPort is the controller's in its pod.
	metricsPort = "8080"
	// away is how long what was measured on a cluster may take to go.
	away = 5 * time.Minute
)

// Attach uses the test cluster in a folder, on which Aether is installed and nobody else is at
// work: the audit log and the controller's process are this machine's. What is made there goes
// with Close.
func Attach(ctx context.Context, dir string) (*Rig, error) {
	c, err := cluster.In(dir)
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	r := &Rig{AuditLog: c.AuditLog(), User: "system:serviceaccount:" + release + ":" + controller}
	if err := r.join(ctx, config); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Rig) join(ctx context.Context, config *rest.Config) error {
	if err := r.attach(config); err != nil {
		return err
	}
	if err := r.namespace(ctx, Namespace); err != nil {
		return err
	}
	r.stop = append(r.stop, r.leave)
	pods, err := r.API.Core.Pods(release).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
	if err != nil {
		return err
	}
	if len(pods.Items) != 1 {
		return fmt.Errorf("namespace %s has %d pods of the controller: want one", release, len(pods.Items))
	}
	pod := pods.Items[0]
	if len(pod.Status.ContainerStatuses) != 1 {
		return fmt.Errorf("pod %s has %d containers that run: want one", pod.Name, len(pod.Status.ContainerStatuses))
	}
	_, container, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
	pid, err := processIn(container, controller)
	r.controller = process{pid: pid, metrics: net.JoinHostPort(pod.Status.PodIP, metricsPort)}
	return err
}

// leave deletes what was made, and waits until it is gone: the next measurement begins anew.
func (r *Rig) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), away) // also when what asked for the measurement has ended
	defer cancel()
	err := r.API.Core.Namespaces().Delete(ctx, Namespace, metav1.DeleteOptions{})
	if err == nil {
		err = await(ctx, "namespace "+Namespace+" is gone", func(ctx context.Context) bool {
			_, err := r.API.Core.Namespaces().Get(ctx, Namespace, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: what was measured is not all gone:", err)
	}
}

// processIn finds the process of a container that runs a program.
func processIn(container, program string) (pid int, err error) {
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return 0, err
	}
	for _, file := range groups {
		dir := filepath.Dir(file)
		group, err1 := os.ReadFile(file)
		command, err2 := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err1 != nil || err2 != nil { // it has ended
			continue
		}
		name, _, _ := bytes.Cut(command, []byte{0})
		if container != "" && strings.Contains(string(group), container) && filepath.Base(string(name)) == program {
			return strconv.Atoi(filepath.Base(dir))
		}
	}
	return 0, fmt.Errorf("no process %s of container %q is on this machine", program, container)
}
