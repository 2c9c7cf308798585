// Command spire is SPIRE on a cluster in one program: server, agent, the driver of the
// volumes by which pods reach the agent, and what tells the kubelet of the driver. What
// server and agent share, which is most of them, is compiled and linked once. The first
// argument says which of them it is:
//
//	spire server run -config FILE
//
// It is a module of its own: the cloud platforms of SPIRE's plugins are no business of the
// product's go.mod.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	agent "github.com/spiffe/spire/cmd/spire-agent/cli"
	server "github.com/spiffe/spire/cmd/spire-server/cli"
)

// programs run with their arguments until they are done, or the process is told to end, and
// return its exit code.
var programs = map[string]func(context.Context, []string) int{
	"server":    new(server.CLI).Run, // server and agent look after signals themselves
	"agent":     new(agent.CLI).Run,
	"driver":    reporting("driver", drive),
	"registrar": reporting("registrar", register),
}

func main() {
	args := append(os.Args[1:], "")
	run := programs[args[0]]
	if run == nil {
		fmt.Fprintf(os.Stderr, "spire: %q is none of %s\n", args[0], strings.Join(slices.Sorted(maps.Keys(programs)), ", "))
		os.Exit(2)
	}
	os.Exit(run(context.Background(), os.Args[2:]))
}

// reporting has a program end with the signals that tell one to, and say its error.
func reporting(name string, run func(context.Context, []string) error) func(context.Context, []string) int {
	return func(ctx context.Context, args []string) int {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		defer stop()
		if err := run(ctx, args); err != nil {
			fmt.Fprintf(os.Stderr, "spire %s: %v\n", name, err)
			return 1
		}
		return 0
	}
}
