package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/go-logr/logr/funcr"
	"github.com/spiffe/spiffe-csi/pkg/driver"
	"github.com/spiffe/spiffe-csi/pkg/server"
)

// driverName is what pods name in their volumes.
const driverName = "csi.spiffe.io"

// drive is SPIFFE's driver: it mounts the folder with the agent's socket where pods have it.
// Its own command does the same, and takes logger libraries besides.
func drive(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("driver", flag.ContinueOnError)
	node := flags.String("node-id", "", "the node's name")
	sockets := flags.String("workload-api-socket-dir", "", "folder of the agent's socket")
	socket := flags.String("csi-socket-path", "/csi/csi.sock", "where the kubelet calls it")
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{LogTimestamp: true})
	d, err := driver.New(driver.Config{Log: log, NodeID: *node, PluginName: driverName, WorkloadAPISocketDir: *sockets})
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Run(server.Config{Log: log, CSISocketPath: *socket, Driver: d}) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done(): // it has no other end than the process's
		return nil
	}
}
