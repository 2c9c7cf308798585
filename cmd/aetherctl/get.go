package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/statedir"
)

// instance is a running standalone instance, asked from outside.
type instance struct {
	dir        statedir.Dir
	controller *inspect.Client
}

func dial(state, dir string) (*instance, error) {
	d, err := stateDir(state, dir)
	if err != nil {
		return nil, err
	}
	return &instance{dir: d, controller: inspect.NewClient(d.ControllerSocket())}, nil
}

// explain says what it means that nobody answers.
func (i *instance) explain(err error) error {
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("no controller answers for the state directory %s: %w", i.dir.Root(), err)
	}
	return err
}

func target(cmd *cobra.Command, state, dir, output *string) {
	cmd.Flags().StringVar(state, "state-dir", "", "the instance's state directory")
	cmd.Flags().StringVar(dir, "dir", "", "the instance's manifest directory, in place of --state-dir")
	cmd.Flags().StringVarP(output, "output", "o", "", "json")
}

func getCommand() *cobra.Command {
	var state, dir, output string
	cmd := &cobra.Command{
		Use:       "get processes|proxies|resources|identity",
		Short:     "Show what a running Aether is made of",
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: []string{"processes", "proxies", "resources", "identity"},
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := dial(state, dir)
			if err != nil {
				return err
			}
			defer i.controller.Close()
			value, table, err := i.get(cmd.Context(), args[0])
			if err != nil {
				return i.explain(err)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), value)
			}
			t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			table(t)
			return t.Flush()
		},
	}
	target(cmd, &state, &dir, &output)
	return cmd
}

// get returns what was asked for as a value for programs and a table for people.
func (i *instance) get(ctx context.Context, what string) (value any, table func(io.Writer), err error) {
	switch what {
	case "processes":
		v := i.processes()
		return v, func(w io.Writer) { processTable(w, v) }, nil
	case "proxies":
		var v []fleet.Proxy
		err := i.controller.Get(ctx, inspect.ProxiesPath, &v)
		return v, func(w io.Writer) { proxyTable(w, v) }, err
	case "resources":
		var v []inspect.Resource
		err := i.controller.Get(ctx, inspect.ResourcesPath, &v)
		return v, func(w io.Writer) { resourceTable(w, v) }, err
	default:
		var v inspect.Identity
		err := i.controller.Get(ctx, inspect.IdentityPath, &v)
		return v, func(w io.Writer) { identityTable(w, v) }, err
	}
}

// process is one process of an instance.
type process struct {
	Name    string `json:"name"`
	PID     int    `json:"pid,omitempty"`
	Running bool   `json:"running"`
}

func (i *instance) processes() []process {
	var out []process
	for _, name := range []string{"controller", "proxy", "envoy"} {
		p := process{Name: name}
		if text, err := os.ReadFile(i.dir.PIDFile(name)); err == nil {
			p.PID, _ = strconv.Atoi(strings.TrimSpace(string(text))) // 0 is told as not running
			p.Running = p.PID > 0 && syscall.Kill(p.PID, 0) == nil
		}
		out = append(out, p)
	}
	return out
}

func processTable(w io.Writer, list []process) {
	fmt.Fprintln(w, "PROCESS\tPID\tRUNNING")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%d\t%t\n", p.Name, p.PID, p.Running)
	}
}

func proxyTable(w io.Writer, list []fleet.Proxy) {
	fmt.Fprintln(w, "PROXY\tSCOPE\tCONNECTED\tVERSION\tCURRENT\tPENDING\tREFUSED\tPORTS\tENVOY\tSVID REMAINING\tLAGGARD")
	for _, p := range list {
		fmt.Fprintf(w, "%s\t%s\t%t\t%s\t%t\t%d\t%d\t%s\t%s\t%s\t%s\n", p.ID, p.ScopeName, p.Connected, short(p.Version), p.Current,
			len(p.Pending), len(p.Refused), ports(p.BoundPorts), p.EnvoyVersion, time.Until(p.NotAfter).Round(time.Minute), p.Laggard)
	}
}

func ports(list []uint32) string {
	var part []string
	for _, p := range list {
		part = append(part, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(part, ",")
}

func short(s string) string { return s[:min(12, len(s))] }

func resourceTable(w io.Writer, list []inspect.Resource) {
	fmt.Fprintln(w, "SCOPE\tTYPE\tNAME\tHASH\tBYTES\tORIGIN")
	for _, r := range list {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", r.Scope, r.Type, r.Name, short(r.Hash), r.Bytes, strings.Join(r.Origin, ","))
	}
}

func identityTable(w io.Writer, v inspect.Identity) {
	fmt.Fprintf(w, "TRUST DOMAIN\t%s\nCA\t%s, key %s, until %s\n", v.TrustDomain, v.CA.Subject, short(v.CA.KeyID), v.CA.NotAfter.Format(time.RFC3339))
	for _, r := range v.Roots {
		fmt.Fprintf(w, "ROOT\t%s\n", r)
	}
	fmt.Fprintln(w, "\nAT\tIDENTITY\tPOD\tSERIAL\tUNTIL\tRESULT\tREASON")
	for _, s := range v.Issued {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.At.Format(time.RFC3339), s.Identity, s.Pod, short(s.Serial), s.NotAfter.Format(time.RFC3339), s.Result, s.Reason)
	}
}
