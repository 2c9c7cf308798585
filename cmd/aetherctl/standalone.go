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

	"aether.io/aether/internal/source/disk"
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
		drain                      = duration(standalone.DefaultDrain)
		extra                      []string
		debug                      bool
	)
	cmd := &cobra.Command{
		Use:   "standalone DIR",
		Short: "Serve the manifests in a directory on this machine",
		Long: `Serve the Gateway API manifests in DIR on this machine: the real controller, discovery
channel, proxy and Envoy, as separate processes that stop with this command.

DIR holds YAML or JSON files, also in sub-folders; edits take effect at once. The word
"ready" alone on a line, and the file "ready" in the state directory, say that Envoy is
configured. From then on each change is told when it is live, and each port when it is bound
or given up; what begins with "!" needs a look, and "aetherctl status" shows what is wrong at
present. Status of every object is also written below
status/ in the state directory.

Ctrl-C or SIGTERM stops it once no request is active, or after --drain; a second Ctrl-C
stops it at once.`,
		Example: `  aetherctl standalone examples/quickstart
  aetherctl standalone examples/quickstart --port-offset 10000   # HTTP on 18080 in place of 8080`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("name one directory of manifests, not %d: aetherctl standalone DIR", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := answers(args[0]); err != nil {
				return err
			}
			dir, err := stateDir(state, args[0])
			if err != nil {
				return err
			}
			if err := checkOutput(output); err != nil {
				return err
			}
			if drain < 0 {
				return fmt.Errorf("--drain %s is below 0", &drain)
			}
			if drain == 0 {
				drain = -1 // not the default
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
			}
			in, err := standalone.New(standalone.Config{
				Dir: args[0], State: dir, Bind: bind, PortOffset: offset, Envoy: envoy, Controller: controller, Proxy: proxy,
				Extra: extra, Drain: time.Duration(drain), Debug: debug, Out: cmd.OutOrStdout(), JSON: output == "json",
				Log: slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level})),
			})
			if err != nil {
				return err
			}
			return in.Run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state-dir", "", "where state is kept (default: derived from DIR, below the user's state directory)")
	f.StringVar(&bind, "bind", standalone.DefaultBind, "IP address that listeners bind")
	f.IntVar(&offset, "port-offset", 0, "added to the port of each listener, e.g. when one is taken")
	f.StringVar(&envoy, "envoy", "", "path of the Envoy binary (default: $AETHER_ENVOY, the build's cache, or PATH)")
	outputFlag(cmd, &output, ", one object a line")
	f.Var(&drain, "drain", "how long active requests may go on when stopping; 0: not at all")
	f.StringArrayVar(&extra, "controller-flag", nil, "flag handed on to the controller, e.g. --controller-flag=--otel-enabled")
	f.BoolVar(&debug, "debug", false, "log what is of use only to a developer, here and in logs/")
	return cmd
}

// answers refuses a directory that would keep whoever looks at it waiting for ever, as one on
// a mount does whose server is gone. Whether it is there is another question.
func answers(dir string) error {
	d := disk.New(disk.Config{})
	defer d.Close()
	if _, err := disk.Ask(d, dir, disk.Follow, func() (os.FileInfo, error) { return os.Stat(dir) }); errors.Is(err, disk.ErrNoAnswer) {
		return fmt.Errorf("manifest directory %s: %w: is it on a mount whose server is gone?", dir, err)
	}
	return nil
}

// stateDir is the state directory that was named, or the default for dir.
func stateDir(named, dir string) (statedir.Dir, error) {
	if named != "" {
		return statedir.Of(named)
	}
	base, err := stateBase()
	if err != nil {
		return statedir.Dir{}, err
	}
	return statedir.For(base, dir)
}

// stateBase is where state directories are by default.
func stateBase() (string, error) {
	if base := os.Getenv("XDG_STATE_HOME"); base != "" {
		return base, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("state directory: %w", err)
	}
	return filepath.Join(home, ".local", "state"), nil
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
	looked := "the cache is known to what \"make build\" builds"
	if envoyVersion != "" {
		cached := filepath.Join(cache, "envoy", envoyVersion, "envoy")
		if _, err := os.Stat(cached); err == nil {
			return cached, nil
		}
		looked = "not at " + cached + ": \"make envoy\" gets it, as this user and with this AETHER_CACHE"
	}
	path, err := exec.LookPath("envoy")
	if err != nil {
		return "", fmt.Errorf("no Envoy: none on PATH, and %s; or name one with --envoy", looked)
	}
	return path, nil
}
