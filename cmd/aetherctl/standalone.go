package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/standalone"
	"aether.io/aether/internal/statedir"
)

// envoyVersion is the version that the build obtained. Set by the linker (-X); empty in
// a plain go build, which then knows of no cached Envoy.
var envoyVersion string

func standaloneCommand() *cobra.Command {
	var (
		state, bind, envoy, output string
		offset                     int
		drain                      time.Duration
		extra                      []string
		debug                      bool
	)
	cmd := &cobra.Command{
		Use:   "standalone DIR",
		Short: "Serve the manifests in a directory on this machine",
		Long: `Serve the Gateway API manifests in DIR on this machine: the real controller, discovery
channel, proxy and Envoy, as separate processes that stop with this command.

DIR holds YAML or JSON files, also in sub-folders; edits take effect at once. The word
"ready" alone on a line, and the file "ready" in the state directory, say that traffic
is served. Status of every object is written below status/ in the state directory.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir, err := stateDir(state, args[0])
			if err != nil {
				return err
			}
			if output != "" && output != "json" {
				return fmt.Errorf("-o %q: want json, or nothing for prose", output)
			}
			if envoy, err = findEnvoy(envoy); err != nil {
				return err
			}
			controller, proxy, err := standalone.Binaries()
			if err != nil {
				return err
			}
			level := slog.LevelWarn
			if debug {
				level = slog.LevelDebug
				extra = append(extra, "--debug")
			}
			in, err := standalone.New(standalone.Config{
				Dir: args[0], State: dir, Bind: bind, PortOffset: offset, Envoy: envoy, Controller: controller, Proxy: proxy,
				Extra: extra, Drain: drain, Out: cmd.OutOrStdout(), JSON: output == "json",
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
			})
			if err != nil {
				return err
			}
			if output == "" {
				fmt.Fprintf(cmd.OutOrStdout(), "state directory %s\n", dir.Root())
			}
			return in.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state-dir", "", "where state is kept (default: derived from DIR, below the user's state directory)")
	f.StringVar(&bind, "bind", standalone.DefaultBind, "IP address that listeners bind")
	f.IntVar(&offset, "port-offset", 0, "added to the port of each listener")
	f.StringVar(&envoy, "envoy", "", "path of the Envoy binary (default: $AETHER_ENVOY, the build's cache, or PATH)")
	f.StringVarP(&output, "output", "o", "", "json: one JSON object a line, for programs")
	f.DurationVar(&drain, "drain", standalone.DefaultDrain, "how long requests may go on when stopping")
	f.StringArrayVar(&extra, "controller-flag", nil, "flag handed on to the controller, e.g. --controller-flag=--otel-enabled")
	f.BoolVar(&debug, "debug", false, "log what is of use only to a developer")
	return cmd
}

// stateDir is the state directory that was named, or the default for dir.
func stateDir(named, dir string) (statedir.Dir, error) {
	if named != "" {
		return statedir.Of(named)
	}
	if dir == "" {
		return statedir.Dir{}, errors.New("name the state directory with --state-dir, or the manifests' directory with --dir")
	}
	base := os.Getenv("XDG_STATE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return statedir.Dir{}, fmt.Errorf("state directory: %w", err)
		}
		base = filepath.Join(home, ".local", "state")
	}
	return statedir.For(base, dir)
}

// findEnvoy returns the Envoy to run: the one that was named, or the first of the usual places.
func findEnvoy(named string) (string, error) {
	if named == "" {
		named = os.Getenv("AETHER_ENVOY")
	}
	if named != "" {
		return named, nil
	}
	cache := os.Getenv("AETHER_CACHE")
	if cache == "" {
		if user, err := os.UserCacheDir(); err == nil {
			cache = filepath.Join(user, "aether")
		}
	}
	cached := filepath.Join(cache, "envoy", envoyVersion, "envoy")
	if _, err := os.Stat(cached); err == nil && envoyVersion != "" {
		return cached, nil
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", fmt.Errorf("no Envoy: none at %s and none on PATH; run \"make envoy\", or name one with --envoy", cached)
	}
	return path, nil
}
