package cluster

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/test/cluster/balancer"
	"aether.io/aether/test/cluster/machine"
	"aether.io/aether/test/cluster/network"
)

// balancerName is the program that gives LoadBalancer Services their addresses, in a group with those
// of the control plane.
const balancerName = "balancer"

// Main is the whole program if it was started as a process of a cluster, and does nothing
// otherwise.
func Main() {
	machine.Main()
	if len(os.Args) != 3 || os.Args[1] != balancerName {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := balance(ctx, os.Args[2], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", balancerName, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// balance works until ctx is done. The log is text, for people.
func balance(ctx context.Context, kubeconfig string, log io.Writer) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	b, err := balancer.New(config, network.Pool, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		return err
	}
	return b.Run(ctx)
}
