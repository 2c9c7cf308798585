package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/run"
)

func TestTheExitStatusTellsAWrongFlagFromWorkThatFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		want int
		text string
	}{
		"an unknown flag":                {arguments(t, "--inspect-port=1", "--no-such-flag"), run.ExitUsage, "no-such-flag"},
		"a value of another type":        {arguments(t, "--inspect-port=many"), run.ExitUsage, "inspect-port"},
		"a flag that is missing":         {[]string{"--inspect-port=1"}, run.ExitUsage, "required flag(s)"},
		"one of two that is missing":     {arguments(t), run.ExitUsage, "inspect-socket"},
		"an argument":                    {arguments(t, "--inspect-port=1", "more"), run.ExitUsage, "more"},
		"a value that means nothing":     {arguments(t, "--inspect-port=1", "--drain-timeout=1s"), run.ExitUsage, "--drain-timeout"},
		"a scope that is none":           {arguments(t, "--inspect-port=1", "--scope=everything"), run.ExitUsage, "--scope"},
		"a trust domain that is none":    {arguments(t, "--inspect-port=1", "--discovery-trust-domain=A B"), run.ExitUsage, "--discovery-trust-domain"},
		"an identity that is none":       {arguments(t, "--inspect-port=1", "--discovery-server-id=controller"), run.ExitUsage, "--discovery-server-id"},
		"a subcommand without its flag":  {[]string{"drain"}, run.ExitUsage, "drain-socket"},
		"a place that cannot be written": {arguments(t, "--inspect-port=1", "--envoy-bootstrap="+filepath.Join(file, "envoy.json")), 1, "bootstrap"},
		"nobody to drain":                {[]string{"drain", "--drain-socket=" + filepath.Join(file, "drain.sock")}, 1, "drain.sock"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(c.args)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if got := run.ExitCode(err); got != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("exit status %d of %v, want %d of one with %q", got, err, c.want, c.text)
			}
		})
	}
}
