// Command ctl makes and removes the test cluster:
//
//	ctl [-dir DIR] programs     build what a cluster is made of
//	ctl [-dir DIR] up [-nodes N]
//	ctl [-dir DIR] load ARCHIVE…
//	ctl [-dir DIR] down
//
// It is to be run in the repository's root, with command pause beside it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"aether.io/aether/test/cluster"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/machine"
)

func main() {
	machine.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1) //nolint:gocritic // the context has no use any more
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ctl", flag.ContinueOnError)
	dir := flags.String("dir", ".build/cluster", "the cluster's folder")
	nodes := flags.Int("nodes", 1, "how many nodes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := cluster.In(*dir)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "programs":
		return programs(ctx)
	case "up":
		if err := up(ctx, *dir, *nodes); err != nil {
			return err
		}
		fmt.Printf("the cluster is up: export KUBECONFIG=%s\n", c.Kubeconfig())
		return nil
	case "load":
		return c.Load(ctx, flags.Args()[1:]...)
	case "down":
		return c.Down(ctx)
	case cluster.Balancer:
		return cluster.Balance(ctx, flags.Arg(1), os.Stderr)
	default:
		return errors.New("want programs, up, load or down")
	}
}

func programs(ctx context.Context) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	for _, p := range []build.Program{build.Kubernetes("."), build.CoreDNS(".")} {
		path, err := p.Make(ctx, cache, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

func up(ctx context.Context, dir string, nodes int) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return cluster.Up(ctx, cluster.Config{
		Root: ".", Dir: dir, Cache: cache, Nodes: nodes, Out: os.Stderr,
		Pause:           filepath.Join(filepath.Dir(self), "pause"),
		BalancerCommand: []string{self, cluster.Balancer},
	})
}
