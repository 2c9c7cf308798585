// Command aether-controller compiles configuration into Envoy resources, is the CA of the
// discovery channel, and serves both to proxies over it.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"aether.io/aether/internal/run"
	"aether.io/aether/internal/telemetry"
	"aether.io/aether/internal/version"
)

// gcPercent is GOGC if the environment has none: what is configured is most of the heap and
// lives long, so a larger share of the time for the collector is cheap, and room for as much
// again is not.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "aether-controller:", err)
		os.Exit(run.ExitCode(err))
	}
}

func root() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:           "aether-controller",
		Short:         "Aether's control plane",
		Long:          "Aether's control plane.\n\nExit status: 64 if flags or environment are not right, 1 if it could not do its work.",
		Version:       version.Get().String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.environment(os.LookupEnv, cmd.Flags()); err != nil {
				return err
			}
			if err := f.check(); err != nil {
				return err
			}
			p := telemetry.Program{Component: "controller", Namespace: f.releaseNamespace, Debug: f.debug, Flags: f.otlp}
			return run.Failed(p.Run(cmd.Context(), cmd.ErrOrStderr(), func(ctx context.Context, log *slog.Logger, metrics *prometheus.Registry, exports *telemetry.Telemetry) error {
				return serve(ctx, f, log, metrics, exports)
			}))
		},
	}
	f.register(cmd)
	return cmd
}
