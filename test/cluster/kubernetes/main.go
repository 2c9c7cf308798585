// Command kubernetes is the programs of a Kubernetes cluster in one: the tests' real
// cluster is made of it. What they share, which is most of them, is compiled and linked
// once. The first argument, or the name under which it is called, says which program it
// is:
//
//	kubernetes kube-apiserver --etcd-servers …
//
// It is a module of its own, because Kubernetes' own module can only be used by naming
// the version of each of its parts.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // CronJobs name time zones

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // kubeconfigs of others
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs makes the command of each program. Only one is ever made in a process: they
// register flags and features of the same names.
var programs = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              proxy.NewProxyCommand,
	"kubectl":                 cmd.NewDefaultKubectlCommand,
}

func main() {
	args := os.Args
	name := filepath.Base(args[0])
	if programs[name] == nil && name != "etcd" && len(args) > 1 {
		args = args[1:]
		name = args[0]
	}
	os.Args = args // what a program reads is its own name and arguments
	if name == "etcd" {
		etcdmain.Main(args)
		return
	}
	make := programs[name]
	if make == nil {
		fmt.Fprintf(os.Stderr, "kubernetes: %q is none of etcd, %s\n", name, strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(make()))
}
