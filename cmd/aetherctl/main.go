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
	"strings"
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

// group is a command that is there for its subcommands. One that is misspelt is an error: with help
// and status 0 a pipeline would take it for a check that found nothing.
func group(use, short string, subcommands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			text := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
			if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
				text += "; did you mean " + strings.Join(like, " or ") + "?"
			}
			return errors.New(text)
		},
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SuggestionsMinimumDistance: 2,
		Annotations:                map[string]string{trouble: "2"},
	}
	cmd.AddCommand(subcommands...)
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
