// Command ctl makes and removes the test cluster:
//
//	ctl [-dir DIR] [-spire] programs                     build what a cluster is made of
//	ctl [-dir DIR] [-spire] [-nodes N] up                a cluster, with SPIRE
//	ctl [-dir DIR] [-spire] [-envoy FILE] [-values FILE] install Aether on it, of the programs in bin
//	ctl [-dir DIR] load ARCHIVE…
//	ctl [-dir DIR] down
//
// It is to be run in the repository's root, and by make, which builds commands pause and probe too.
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
	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/cluster/spire"
)

func main() {
	cluster.Main()
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
	envoy := flags.String("envoy", "", "install: the Envoy binary")
	values := flags.String("values", "", "install: a file of values for the chart")
	withSPIRE := flags.Bool("spire", false, "SPIRE, too, which Aether uses")
	if err := flags.Parse(args); err != nil {
		return err
	}
	c, err := cluster.In(*dir)
	if err != nil {
		return err
	}
	switch flags.Arg(0) {
	case "programs":
		return programs(ctx, *withSPIRE)
	case "up":
		if err := cluster.Up(ctx, cluster.Config{Root: ".", Dir: *dir, Nodes: *nodes, Out: os.Stderr}); err != nil {
			return err
		}
		if *withSPIRE {
			if err := upSPIRE(ctx, c); err != nil {
				return err
			}
		}
		fmt.Printf("the cluster is up:\n  export KUBECONFIG=%s PATH=%s:$PATH\n", c.Kubeconfig(), filepath.Dir(c.Kubeconfig()))
		return nil
	case "install":
		files := []string{}
		if *withSPIRE {
			files = append(files, spire.Values)
		}
		if *values != "" {
			files = append(files, *values)
		}
		return install(ctx, c, *envoy, files)
	case "load":
		return c.Load(ctx, flags.Args()[1:]...)
	case "down":
		return c.Down(ctx)
	default:
		return errors.New("want programs, up, install, load or down")
	}
}

func programs(ctx context.Context, withSPIRE bool) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	list := []build.Program{build.Kubernetes("."), build.CoreDNS("."), build.Helm("."), build.Collector(".")}
	if withSPIRE {
		list = append(list, build.SPIRE("."))
	}
	for _, p := range list {
		path, err := p.Make(ctx, cache, os.Stderr)
		if err != nil {
			return err
		}
		fmt.Println(path)
	}
	return nil
}

// install puts Aether on the cluster and says how to use it.
func install(ctx context.Context, c cluster.Cluster, envoy string, values []string) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	helm, err := build.Helm(".").Make(ctx, cache, os.Stderr)
	if err != nil {
		return err
	}
	if err := c.Offer("helm", helm); err != nil {
		return err
	}
	probe, err := build.Tool(".", "probe")
	if err != nil {
		return err
	}
	r, err := release.New(release.Config{Cluster: c, Root: ".", Programs: "bin", Probe: probe, Envoy: envoy, Helm: helm, Values: values, TakeOver: true, Out: os.Stderr})
	if err != nil {
		return err
	}
	if err := r.Up(ctx); err != nil {
		return err
	}
	fmt.Print(`Aether is installed. To see it serve:
  kubectl apply -f examples/kubernetes
  kubectl wait --for=condition=Available deployment/shop --timeout=60s
  kubectl wait --for=condition=Programmed gateway/web --timeout=60s
  curl -H 'Host: shop.example.com' http://$(kubectl get gateway web -o jsonpath='{.status.addresses[0].value}')/
`)
	return nil
}

// upSPIRE puts SPIRE on the cluster, which knows Aether's controller.
func upSPIRE(ctx context.Context, c cluster.Cluster) error {
	cache, err := build.Cache()
	if err != nil {
		return err
	}
	program, err := build.SPIRE(".").Make(ctx, cache, os.Stderr)
	if err != nil {
		return err
	}
	s, err := spire.New(spire.Config{Cluster: c, Program: program, Out: os.Stderr})
	if err != nil {
		return err
	}
	if err := s.Up(ctx); err != nil {
		return err
	}
	return s.Register(ctx, spire.Controller(release.Namespace, release.Name))
}
