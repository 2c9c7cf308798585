// Command aetherctl is Aether at a person's fingertips: it runs Aether on one machine
// from a directory of manifests, and shows what a running one does.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends it at once. What stops processes may send each signal twice, as
	// timeout(1) does: that is not yet a second one.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	ran, err := root().ExecuteContextC(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "aetherctl:", err)
		os.Exit(exitStatus(ran, err))
	}
}

// trouble is, in a command's annotations, the exit status of all errors that are not what the
// command is there to find: of a command whose status 1 has a meaning, they have another.
const trouble = "exit-status-of-errors"

// found is an error that says what a command was asked to find; its exit status is 1.
type found struct{ error }

func exitStatus(ran *cobra.Command, err error) int {
	if _, is := errors.AsType[found](err); is || ran == nil {
		return 1
	}
	if status, convErr := strconv.Atoi(ran.Annotations[trouble]); convErr == nil {
		return status
	}
	return 1
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "aetherctl",
		Short:         "Run and look into Aether, a Kubernetes gateway and service mesh on stock Envoy",
		Version:       version.Get().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.AddCommand(standaloneCommand(), statusCommand(), getCommand(), configCommand(), discoveryCommand(), analyzeCommand(), explainCommand(), versionCommand())
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show which version this is",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version.Get())
			return err
		},
	}
}
