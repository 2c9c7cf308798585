// Command aether-proxy is the discovery client beside one Envoy: it obtains an identity
// from the controller, receives configuration under it, and feeds Envoy over a Unix socket.
// It holds no Kubernetes credential and translates nothing.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"aether.io/aether/internal/drain"
	"aether.io/aether/internal/run"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/version"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "aether-proxy:", err)
		os.Exit(run.ExitCode(err))
	}
}

func root() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:           "aether-proxy",
		Short:         "Discovery client and local xDS server of one Envoy",
		Long:          "Discovery client and local xDS server of one Envoy.\n\nExit status: 64 if flags are not right, 1 if it could not do its work.",
		Version:       version.Get().String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			p := telemetry.Program{Component: "proxy", Namespace: f.releaseNamespace(), Debug: f.debug, Flags: f.otlp}
			return run.Failed(p.Run(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context, log *slog.Logger, metrics *prometheus.Registry, exports *telemetry.Telemetry) error {
				return serve(ctx, f, log, metrics, exports)
			}))
		},
	}
	f.register(cmd)
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(drainCommand())
	return cmd
}

// drainCommand is what runs in the pod before it stops.
func drainCommand() *cobra.Command {
	var socket string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have the running proxy drain its Envoy, and wait until that is over",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return run.Failed(drain.Ask(ctx, socket))
		},
	}
	cmd.Flags().StringVar(&socket, "drain-socket", "", "the running proxy's --drain-socket (required)")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait; the drain goes on")
	if err := cmd.MarkFlagRequired("drain-socket"); err != nil {
		panic(err) // it is registered above
	}
	return cmd
}
