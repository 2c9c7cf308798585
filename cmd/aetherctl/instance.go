package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/remote"
	"aether.io/aether/internal/standalone"
	"aether.io/aether/internal/statedir"
)

// target is which instance or installation a command asks, and how it answers.
type target struct {
	state, dir                   string
	kubeconfig, context, release string
	output                       string
}

func (t *target) flags(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&t.dir, "dir", "", "the directory of manifests that the instance serves (default: the one instance that runs; if none does, the cluster of the kubeconfig)")
	s.StringVar(&t.state, "state-dir", "", "the instance's state directory, in place of --dir")
	t.clusterFlags(cmd, "on a cluster: ")
	outputFlag(cmd, &t.output, "")
}

// clusterFlags are those of a cluster; when is said before what each is.
func (t *target) clusterFlags(cmd *cobra.Command, when string) {
	s := cmd.Flags()
	s.StringVar(&t.kubeconfig, "kubeconfig", "", when+"the file that says how to reach it (default: as kubectl)")
	s.StringVar(&t.context, "context", "", when+"the context of the kubeconfig (default: its current one)")
	s.StringVar(&t.release, "release-namespace", "", when+"the namespace that Aether is installed in (default: "+remote.DefaultNamespace+")")
}

func outputFlag(cmd *cobra.Command, output *string, what string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "json: for programs"+what)
}

func checkOutput(output string) error {
	if output != "" && output != "json" {
		return fmt.Errorf("-o %q is not known: there is json, and without -o what people read", output)
	}
	return nil
}

// instance is a running Aether, asked from outside: a standalone instance, or an installation
// on a cluster.
type instance struct {
	controller *inspect.Client

	dir       statedir.Dir
	settings  standalone.Settings // zero if it never ran
	manifests string              // as they were named; may be empty

	cluster *remote.Installation // nil: standalone
}

// dial finds who is to be asked. Close the controller when done.
func (t *target) dial() (*instance, error) {
	if err := checkOutput(t.output); err != nil {
		return nil, err
	}
	local, far := t.state != "" || t.dir != "", t.kubeconfig != "" || t.context != "" || t.release != ""
	switch {
	case local && far:
		return nil, errors.New("--dir and --state-dir name an instance on this machine, --kubeconfig, --context and --release-namespace one on a cluster: give one")
	case far:
		return t.dialCluster()
	}
	i, err := t.dialLocal()
	if errors.Is(err, errNoInstance) {
		if there, clusterErr := t.dialCluster(); !errors.Is(clusterErr, errNoCluster) {
			return there, clusterErr
		}
	}
	return i, err
}

func (t *target) dialLocal() (*instance, error) {
	i := &instance{manifests: t.dir}
	var err error
	switch {
	case t.state != "" && t.dir != "":
		return nil, errors.New("--state-dir and --dir both name the instance: give one")
	case t.state == "" && t.dir == "":
		i.dir, err = theOneThatRuns()
	default:
		i.dir, err = stateDir(t.state, t.dir)
	}
	if err != nil {
		return nil, err
	}
	i.settings, err = standalone.ReadSettings(i.dir)
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("the instance belongs to another user: %w", err)
	}
	i.controller = inspect.NewClient(i.dir.ControllerSocket())
	return i, nil
}

// errNoInstance says that none was named and none runs.
var errNoInstance = errors.New("no instance runs")

// theOneThatRuns finds the instance to ask when none is named.
func theOneThatRuns() (statedir.Dir, error) {
	base, err := stateBase()
	if err != nil {
		return statedir.Dir{}, err
	}
	found, err := filepath.Glob(filepath.Join(base, "aether", "*", "settings.json"))
	if err != nil {
		return statedir.Dir{}, err
	}
	var dirs []statedir.Dir
	var names []string
	for _, path := range found {
		d, err := statedir.Of(filepath.Dir(path))
		if err != nil {
			continue
		}
		if s, err := standalone.ReadSettings(d); err == nil && running(s) {
			dirs, names = append(dirs, d), append(names, "\n  --dir "+s.Dir)
		}
	}
	switch len(dirs) {
	case 0:
		return statedir.Dir{}, fmt.Errorf("%w below %s, and no kubeconfig says which cluster to ask: start one with \"aetherctl standalone DIR\", or name its --state-dir", errNoInstance, filepath.Join(base, "aether"))
	case 1:
		return dirs[0], nil
	}
	return statedir.Dir{}, fmt.Errorf("%d instances run: name one%s", len(dirs), strings.Join(names, ""))
}

// running reports whether the supervisor lives: a process of its pid that is one.
func running(s standalone.Settings) bool {
	if s.Supervisor <= 0 {
		return false
	}
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.Supervisor), "cmdline"))
	return err == nil && bytes.Contains(line, []byte("\x00standalone\x00"))
}

// explain says what it means that nobody answers.
func (i *instance) explain(err error) error {
	if i.cluster != nil {
		return i.explainCluster(err)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the controller does not answer in time: it is busy, or it was stopped; see %s", i.dir.Log("controller"))
	}
	if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if running(i.settings) {
		return fmt.Errorf("the controller does not answer at present: it starts, or see why it does not in %s", i.dir.Log("controller"))
	}
	return i.notRunning()
}

func (i *instance) notRunning() error {
	if i.manifests != "" {
		return fmt.Errorf("no instance runs on %s: start one with \"aetherctl standalone %s\" (looked in the state directory %s)", i.manifests, i.manifests, i.dir.Root())
	}
	return fmt.Errorf("no instance runs on the state directory %s", i.dir.Root())
}
