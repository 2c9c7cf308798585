package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/object"
)

func getCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "get processes|proxies|resources|identity",
		Short: "Show what a running Aether is made of",
		Long: `Show what a running Aether is made of:

  processes   its processes, whether they run, their logs, and where its state is; of a
              cluster, the pods of controller and proxies, and whether they are ready
  proxies     which proxy runs which version of the configuration, and what it lacks or refuses
  resources   what each scope is sent, and which objects each resource comes from
  identity    who signs, and for whom it did or refused to

Of proxies: CURRENT is whether it runs the newest configuration, PENDING how many resources
it has been sent and Envoy does not run yet, REFUSED how many Envoy refuses (named below the
table), PORTS what Envoy listens on, SVID REMAINING how long its identity is valid, and
LAGGARD why it is behind the others.

Of resources: SCOPE is who is sent it (the shared proxies, or those of one Gateway), HASH its
content, ORIGIN the objects that it comes from.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && whatToGet(args[0]) != "" {
				return nil
			}
			if len(args) == 1 {
				return whatInstead(args[0])
			}
			return fmt.Errorf("get what? One of %s", strings.Join(getable(), ", "))
		},
		ValidArgs: getable(),
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := t.dial()
			if err != nil {
				return err
			}
			defer i.controller.Close()
			value, table, err := i.get(cmd.Context(), whatToGet(args[0]))
			if err != nil {
				return i.explain(err)
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), value)
			}
			w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 4, 2, ' ', 0)
			table(w)
			return w.Flush()
		},
	}
	t.flags(cmd)
	return cmd
}

// whatInstead says what there is to get, and what shows objects.
func whatInstead(typed string) error {
	text := fmt.Sprintf("get %s? There are %s", typed, strings.Join(getable(), ", "))
	kind, _, _ := strings.Cut(typed, "/")
	if slices.ContainsFunc(object.Kinds(), func(k object.Kind) bool { return sameKind(string(k), kind) }) {
		text += "; of objects there is \"aetherctl status " + typed + "\""
	}
	return errors.New(text)
}

func getable() []string { return []string{"processes", "proxies", "resources", "identity"} }

// whatToGet takes what people type, singular or plural; empty if there is no such thing.
func whatToGet(typed string) string {
	typed = strings.ToLower(typed)
	for _, what := range getable() {
		if typed == what || sameKind(typed, what) || typed == "proxy" && what == "proxies" {
			return what
		}
	}
	return ""
}

// get returns what was asked for as a value for programs and a table for people.
func (i *instance) get(ctx context.Context, what string) (value any, table func(io.Writer), err error) {
	switch what {
	case "processes":
		if i.cluster != nil {
			v, err := i.pods(ctx)
			return v, func(w io.Writer) { processTable(w, v) }, err
		}
		if !running(i.settings) {
			return nil, nil, i.notRunning()
		}
		v := i.processes()
		return v, func(w io.Writer) { processTable(w, v); fmt.Fprintf(w, "\nstate directory: %s\n", i.dir.Root()) }, nil
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
	Log     string `json:"log,omitempty"` // path of its log
}

func (i *instance) processes() []process {
	out := []process{{Name: "aetherctl", PID: i.settings.Supervisor, Running: true}}
	for _, name := range []string{"controller", "proxy", "envoy"} {
		p := process{Name: name, Log: i.dir.Log(name)}
		if text, err := os.ReadFile(i.dir.PIDFile(name)); err == nil {
			p.PID, _ = strconv.Atoi(strings.TrimSpace(string(text))) // 0 is told as not running
			p.Running = p.PID > 0 && syscall.Kill(p.PID, 0) == nil
		}
		out = append(out, p)
	}
	return out
}

func processTable(w io.Writer, list []process) {
	row(w, "PROCESS", "PID", "RUNNING", "LOG")
	for _, p := range list {
		pid := ""
		if p.PID > 0 {
			pid = strconv.Itoa(p.PID)
		}
		row(w, p.Name, pid, strconv.FormatBool(p.Running), p.Log)
	}
}

func proxyTable(w io.Writer, list []fleet.Proxy) {
	if len(list) == 0 {
		fmt.Fprintln(w, "no proxy is connected yet")
		return
	}
	row(w, "PROXY", "SCOPE", "CONNECTED", "VERSION", "CURRENT", "PENDING", "REFUSED", "PORTS", "ENVOY", "SVID REMAINING", "LAGGARD")
	for _, p := range list {
		row(w, p.ID, p.ScopeName, strconv.FormatBool(p.Connected), short(p.Version), strconv.FormatBool(p.Current),
			strconv.Itoa(len(p.Pending)), strconv.Itoa(len(p.Refused)), ports(p.BoundPorts), p.EnvoyVersion, remaining(time.Until(p.NotAfter)), p.Laggard)
	}
	for _, p := range list {
		for _, r := range p.Refused {
			fmt.Fprintf(w, "\n%s refuses %s: %s\n", p.ID, r.Name, r.Detail)
		}
	}
}

func ports(list []uint32) string {
	var part []string
	for _, p := range list {
		part = append(part, strconv.FormatUint(uint64(p), 10))
	}
	return strings.Join(part, ",")
}

// remaining is a duration without what nobody looks at.
func remaining(d time.Duration) string {
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

func short(s string) string { return s[:min(12, len(s))] }

func resourceTable(w io.Writer, list []inspect.Resource) {
	if len(list) == 0 {
		fmt.Fprintln(w, "there is no resource yet")
		return
	}
	row(w, "SCOPE", "TYPE", "NAME", "HASH", "BYTES", "ORIGIN")
	for _, r := range list {
		row(w, r.Scope, r.Type, r.Name, short(r.Hash), strconv.Itoa(r.Bytes), strings.Join(r.Origin, ","))
	}
}

func identityTable(w io.Writer, v inspect.Identity) {
	fmt.Fprintf(w, "TRUST DOMAIN\t%s\nCA\t%s, key %s, until %s\n", v.TrustDomain, v.CA.Subject, short(v.CA.KeyID), v.CA.NotAfter.Format(time.RFC3339))
	for _, r := range v.Roots {
		fmt.Fprintf(w, "ROOT\t%s\n", r)
	}
	fmt.Fprintln(w)
	row(w, "AT", "IDENTITY", "POD", "SERIAL", "UNTIL", "RESULT", "REASON")
	for _, s := range v.Issued {
		row(w, s.At.Format(time.RFC3339), s.Identity, s.Pod, short(s.Serial), s.NotAfter.Format(time.RFC3339), s.Result, s.Reason)
	}
}

// row writes one row of a table. An empty cell is a dash: columns can be cut apart.
func row(w io.Writer, cells ...string) {
	for i, c := range cells {
		if c == "" {
			cells[i] = "-"
		}
	}
	fmt.Fprintln(w, strings.Join(cells, "\t"))
}
