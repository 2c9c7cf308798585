package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/meshconfig"
)

func configCommand() *cobra.Command {
	return group("config", "Show mesh configuration as it is in effect, and what a change of it would do", configGetCommand(), configDiffCommand())
}

func configGetCommand() *cobra.Command {
	var t target
	var effective bool
	cmd := &cobra.Command{
		Use:   "get [NAMESPACE]",
		Short: "Show what MeshConfigs set, or what is in effect, and where each value comes from",
		Long: `Show what the MeshConfig of a namespace sets, or those of all namespaces. With --effective every
field is shown with its value in effect, whether the namespace has a MeshConfig or not; without
NAMESPACE, of each namespace that has a MeshConfig or a Gateway, and of the release namespace.

FROM is the MeshConfig that sets the value (NAMESPACE/default), "system" with the values of the
chart that it follows, or "default". A MeshConfig that is refused is shown as it was last good:
that is what is in effect.

Whom it asks is told by "aetherctl status --help".`,
		Example: `  aetherctl config get
  aetherctl config get shop --effective
  aetherctl config get --effective -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.MaximumNArgs(1)(cmd, args); err != nil || len(args) == 0 {
				return err
			}
			if namespace, _, more := strings.Cut(args[0], "/"); more {
				return fmt.Errorf("%s is more than a namespace, of which each has one MeshConfig at most: aetherctl config get %s", args[0], strings.ToLower(namespace))
			}
			return checkNamespace(args[0])
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			asYAML := t.output == "yaml"
			if !asYAML && checkOutput(t.output) != nil {
				return fmt.Errorf("-o %q is not known: there are json and yaml, and without -o what people read", t.output)
			}
			if asYAML {
				t.output = "json"
			}
			i, err := t.dial()
			if err != nil {
				return err
			}
			defer i.controller.Close()
			live, err := i.meshConfig(cmd.Context())
			if err != nil {
				return i.explain(err)
			}
			namespaces := live.namespaces()
			if len(args) == 1 {
				namespaces = args
			}
			values := live.values(namespaces, effective)
			switch {
			case asYAML:
				text, err := yaml.Marshal(values)
				if err == nil {
					_, err = cmd.OutOrStdout().Write(text)
				}
				return err
			case t.output == "json":
				return printJSON(cmd.OutOrStdout(), values)
			}
			return live.print(cmd.OutOrStdout(), namespaces, values)
		},
	}
	t.flags(cmd)
	cmd.Flags().Lookup("output").Usage = "json, yaml: for programs"
	cmd.Flags().BoolVar(&effective, "effective", false, "show every field with its value in effect")
	return cmd
}

// meshValue is one field of one namespace.
type meshValue struct {
	Namespace string `json:"namespace"`
	meshconfig.Named
}

// meshLive is the mesh configuration that a controller goes by, and whom it concerns.
type meshLive struct {
	release string
	system  meshconfig.System
	objects map[string]*configv1.MeshConfig // by namespace
	served  map[string][]string             // by namespace with Gateways: the scopes in which they are served
}

// meshConfig asks the controller.
func (i *instance) meshConfig(ctx context.Context) (*meshLive, error) {
	var c inspect.Config
	if err := i.controller.Get(ctx, inspect.ConfigPath, &c); err != nil {
		return nil, err
	}
	var resources []inspect.Resource
	if err := i.controller.Get(ctx, inspect.ResourcesPath, &resources); err != nil {
		return nil, err
	}
	return readMesh(c, resources)
}

func readMesh(c inspect.Config, resources []inspect.Resource) (*meshLive, error) {
	live := &meshLive{
		release: c.ReleaseNamespace, system: c.System.Inherited(),
		objects: map[string]*configv1.MeshConfig{}, served: map[string][]string{},
	}
	for _, m := range c.MeshConfigs {
		spec, _, err := meshconfig.Parse(m.Spec)
		if err != nil {
			return nil, fmt.Errorf("read what the controller says of the MeshConfig of %s: %w", m.Namespace, err)
		}
		live.objects[m.Namespace] = newMesh(m.Namespace, spec)
	}
	for _, r := range resources {
		if r.Type != "Listener" {
			continue
		}
		for _, o := range r.Origin {
			kind, namespace, _ := parts(o)
			if kind == "Gateway" && !slices.Contains(live.served[namespace], r.Scope) {
				live.served[namespace] = append(live.served[namespace], r.Scope)
			}
		}
	}
	return live, nil
}

func newMesh(namespace string, spec *configv1.MeshConfigSpec) *configv1.MeshConfig {
	return &configv1.MeshConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: configv1.MeshConfigName}, Spec: spec}
}

// namespaces are those of which there is something to say, sorted, the release namespace first.
func (l *meshLive) namespaces() []string {
	var out []string
	for n := range l.objects {
		out = append(out, n)
	}
	for n := range l.served {
		out = append(out, n)
	}
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(n string) bool { return n == l.release })
	return append([]string{l.release}, out...)
}

// effective is what is in effect in a namespace.
func (l *meshLive) effective(namespace string) meshconfig.Effective {
	return meshconfig.Resolve(l.system, l.objects[l.release], l.objects[namespace])
}

// values are the fields of namespaces: all that are in effect, or those that their own
// MeshConfigs set.
func (l *meshLive) values(namespaces []string, effective bool) []meshValue {
	out := []meshValue{}
	for _, n := range namespaces {
		for _, v := range l.effective(n).Values() {
			if effective || v.From == n+"/"+configv1.MeshConfigName {
				out = append(out, meshValue{n, v})
			}
		}
	}
	return out
}

func (l *meshLive) print(w io.Writer, namespaces []string, values []meshValue) error {
	if len(values) == 0 {
		text := "no MeshConfig sets anything"
		if others := slices.Sorted(maps.Keys(l.objects)); len(namespaces) == 1 && l.objects[namespaces[0]] == nil && len(others) > 0 {
			text = fmt.Sprintf("namespace %s has no MeshConfig; these have one: %s", namespaces[0], strings.Join(few(others), ", "))
		} else if len(namespaces) == 1 {
			text += " in namespace " + namespaces[0]
		}
		_, err := fmt.Fprintln(w, text+". --effective shows what is inherited")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row(t, "NAMESPACE", "FIELD", "VALUE", "FROM")
	for _, v := range values {
		row(t, v.Namespace, v.Path, fmt.Sprint(v.Value), origin(v.Named))
	}
	return t.Flush()
}

// origin is where a value comes from, with what of the chart's it follows.
func origin(v meshconfig.Named) string {
	if system := meshconfig.SystemValue(v.Path); v.From == meshconfig.FromSystem && system != "" {
		return fmt.Sprintf("%s (%s)", v.From, system)
	}
	return v.From
}

// errNoMeshConfig says that files have nothing to compare.
var errNoMeshConfig = errors.New("there is no MeshConfig in the files")

// short forms of a value for one cell.
func shown(v meshconfig.Named) string {
	text, err := json.Marshal(v.Value)
	if err != nil {
		text = []byte(fmt.Sprint(v.Value))
	}
	return strings.TrimSpace(string(text)) + " (" + v.From + ")"
}
