package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/dossier"
	"aether.io/aether/internal/standalone/view"
)

func configDiffCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "diff FILE|DIR|-...",
		Short: "Show what MeshConfigs in files would change, and which proxies that would touch",
		Long: `Compare the MeshConfigs in files with what is in effect: for each field and namespace the value in
effect now and the one that would be, each with where it comes from, also in namespaces that
inherit it; and the proxies whose configuration that would change. Nothing is applied. Documents
of other kinds are left out. A MeshConfig that would be refused is an error.

Exit status: 0 if nothing would change, 1 if something would, 2 if it could not be compared.`,
		Example: `  aetherctl config diff mesh.yaml
  kustomize build . | aetherctl config diff -`,
		Annotations: map[string]string{trouble: "2"},
		Args:        cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			given, err := readMeshConfigs(cmd, args)
			if err != nil {
				return err
			}
			i, err := t.dial()
			if err != nil {
				return err
			}
			defer i.controller.Close()
			d, err := i.compare(cmd.Context(), given)
			if err != nil {
				return i.explain(err)
			}
			if t.output == "json" {
				err = printJSON(cmd.OutOrStdout(), d)
			} else {
				err = d.print(cmd.OutOrStdout())
			}
			if err == nil && len(d.Changes) > 0 {
				err = found{fmt.Errorf("%s", view.Plural(len(d.Changes), "difference"))}
			}
			return err
		},
	}
	t.flags(cmd)
	return cmd
}

// readMeshConfigs reads the MeshConfigs in files. What has no effect is told, what would be
// refused is an error.
func readMeshConfigs(cmd *cobra.Command, names []string) (map[string]*configv1.MeshConfig, error) {
	reader, err := dossier.New(cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	documents, err := reader.Read(cmd.Context(), names)
	if err != nil {
		return nil, err
	}
	out := map[string]*configv1.MeshConfig{}
	var bad []error
	for _, d := range documents {
		if d.Key.Kind != object.MeshConfig && d.Key.Kind != "" {
			continue
		}
		for _, w := range d.Wrong {
			text := fmt.Sprintf("%s: %s", place(d, w), w.Message)
			switch {
			case w.Refused:
				bad = append(bad, errors.New(text))
			case !w.Ignored:
				fmt.Fprintln(cmd.ErrOrStderr(), "aetherctl: "+view.OneLine(text))
			}
		}
		o, is := d.Object.(*configv1.MeshConfig)
		if !is {
			continue
		}
		if out[d.Key.Namespace] != nil {
			bad = append(bad, fmt.Errorf("%s is in the files twice", d.Key))
		}
		out[d.Key.Namespace] = newMesh(d.Key.Namespace, o.Spec)
	}
	if len(bad) == 0 && len(out) == 0 {
		return nil, fmt.Errorf("%w %s", errNoMeshConfig, strings.Join(names, ", "))
	}
	return out, errors.Join(bad...)
}

// place is where something wrong is, for people.
func place(d analyze.Document, w analyze.Wrong) string {
	at := d.File
	if d.Line != nil {
		if line := d.Line(w.Path); line > 0 {
			at += fmt.Sprintf(":%d", line)
		}
	}
	if w.Path != "" {
		at += ": " + w.Path
	}
	return at
}

// difference is what a change of mesh configuration would do.
type difference struct {
	Changes []meshChange `json:"changes"`
	Proxies []string     `json:"proxies"` // whose configuration would change, sorted
}

// meshChange is one field of one namespace whose value, or where that comes from, would differ.
type meshChange struct {
	Namespace string           `json:"namespace"`
	Live      meshconfig.Named `json:"live"`
	File      meshconfig.Named `json:"file"`
}

// compare finds out what would change if given were applied.
func (i *instance) compare(ctx context.Context, given map[string]*configv1.MeshConfig) (difference, error) {
	live, err := i.meshConfig(ctx)
	if err != nil {
		return difference{}, err
	}
	var proxies []fleet.Proxy
	if err := i.controller.Get(ctx, inspect.ProxiesPath, &proxies); err != nil {
		return difference{}, err
	}
	return live.compare(given, proxies), nil
}

func (l *meshLive) compare(given map[string]*configv1.MeshConfig, proxies []fleet.Proxy) difference {
	next := *l
	next.objects = maps.Clone(l.objects)
	maps.Copy(next.objects, given)
	d := difference{Changes: []meshChange{}, Proxies: []string{}}
	scopes := map[string]bool{}
	for _, n := range next.namespaces() {
		before, after := l.effective(n).Values(), next.effective(n).Values()
		for f := range before {
			if before[f] == after[f] {
				continue
			}
			d.Changes = append(d.Changes, meshChange{n, before[f], after[f]})
			if before[f].Value != after[f].Value {
				for _, s := range l.served[n] {
					scopes[s] = true
				}
			}
		}
	}
	for _, p := range proxies {
		if scopes[p.ScopeName] {
			d.Proxies = append(d.Proxies, p.ID)
		}
	}
	slices.Sort(d.Proxies)
	return d
}

func (d difference) print(w io.Writer) error {
	if len(d.Changes) == 0 {
		_, err := fmt.Fprintln(w, "nothing would change")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row(t, "NAMESPACE", "FIELD", "LIVE", "FILE")
	for _, c := range d.Changes {
		row(t, c.Namespace, c.Live.Path, shown(c.Live), shown(c.File))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	names := d.Proxies[:min(len(d.Proxies), mostOffered)]
	text := "no proxy would be touched"
	if len(d.Proxies) > 0 {
		text = fmt.Sprintf("would touch %d of the proxies that are known: %s", len(d.Proxies), strings.Join(names, ", "))
		if more := len(d.Proxies) - len(names); more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", text)
	return err
}
