package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/run"
)

func TestTheExitStatusTellsAWrongFlagFromWorkThatFails(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "kubeconfig")
	for name, c := range map[string]struct {
		args []string
		want int
		text string
	}{
		"an unknown flag":                {[]string{"--no-such-flag"}, run.ExitUsage, "no-such-flag"},
		"an argument":                    {[]string{"more"}, run.ExitUsage, "more"},
		"one of several that is alone":   {[]string{"--directory=."}, run.ExitUsage, "state-dir"},
		"two that exclude each other":    {[]string{"--directory=.", "--state-dir=.", "--stream-fd=3", "--bootstrap-fd=4", "--kubeconfig=x"}, run.ExitUsage, "kubeconfig"},
		"a value that means nothing":     {[]string{"--bind=here"}, run.ExitUsage, "--bind"},
		"a trust domain that is none":    {[]string{"--discovery-trust-domain=A B"}, run.ExitUsage, "--discovery-trust-domain"},
		"a namespace that is none":       {[]string{"--release-namespace=A/B"}, run.ExitUsage, "--release-namespace"},
		"a selector that is none":        {[]string{"--shared-proxy-selector=a in (b)"}, run.ExitUsage, "--shared-proxy-selector"},
		"a kubeconfig that is not there": {[]string{"--kubeconfig=" + missing}, 1, missing},
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
