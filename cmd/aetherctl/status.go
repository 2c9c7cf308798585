package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone/view"
)

func statusCommand() *cobra.Command {
	var t target
	var namespace string
	var check bool
	cmd := &cobra.Command{
		Use:   "status [KIND [[NAMESPACE/]NAME]]",
		Short: "Show the status of objects, and what is wrong with them and with the manifests",
		Long: `Show the status of every object that has one, or of one kind, or of one object whole.
Below it is what is not as it should be: conditions with their reasons, objects that have no
effect, files and objects that could not be taken, proxies that are behind, and what is wrong with the
controller itself; if an object is named, what is wrong with how it is written now, and files that are
not read at all, which may have it.

Whom it asks: the instance that --dir or --state-dir names, or the one that runs on this machine; if
none does, or one of --kubeconfig, --context and --release-namespace is given, the controller on a cluster,
through the API server and with your own rights (list pods, create pods/portforward). While no controller
can be asked, what the proxies there say of themselves is shown in its place.

The exit status is 0 whatever it finds, unless --check is given.`,
		Example: `  aetherctl status
  aetherctl status --check              # exits with 1 if there is something to look at
  aetherctl status httproutes -n shop
  aetherctl status httproute shop
  aetherctl status HTTPRoute/default/shop -o json
  aetherctl status --context production # of Aether on a cluster`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 2 {
				return errors.New("status of what? Name a kind, and then an object: status httproute default/shop")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			i, err := t.dial()
			if err != nil {
				return err
			}
			defer i.controller.Close()
			found, err := i.findings(cmd.Context())
			if err != nil {
				return i.withoutController(cmd.Context(), cmd.OutOrStdout(), i.explain(err))
			}
			q, err := ask(args, namespace)
			if err != nil {
				return err
			}
			if found, err = found.pick(q); err != nil {
				return err
			}
			if err := found.print(cmd.OutOrStdout(), t.output, q); err != nil {
				return err
			}
			if n := len(found.toLookAt()); check && n > 0 {
				return fmt.Errorf("%d to look at", n)
			}
			return nil
		},
	}
	t.flags(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "only objects of this namespace")
	cmd.Flags().BoolVar(&check, "check", false, "exit with 1 if there is something to look at")
	return cmd
}

// print shows what was found, or what was found of the one object that was asked for.
func (f findings) print(w io.Writer, output string, q query) error {
	if output == "json" {
		return printJSON(w, append([]inspect.StatusDocument{}, f.docs...))
	}
	if q.name == "" {
		f.printStatuses(w, q)
		printList(w, "", "to look at", f.toLookAt())
		printList(w, "", "not read, which Aether has no use for", f.unread())
		return nil
	}
	if err := printWhole(w, f.docs); err != nil {
		return err
	}
	f.docs = nil // are shown whole
	printList(w, "# ", "to look at", f.toLookAt())
	return nil
}

// problem is what is shown of a source.Problem.
type problem struct {
	File     string `json:"file"`
	Document int    `json:"document"`
	Object   string `json:"object"`
	Path     string `json:"path"`
	Message  string `json:"message"`
	Severity string `json:"severity"`
}

// ignored is the severity of a document that is none of ours (source.Ignored).
const ignored = "Ignored"

func (f findings) printStatuses(w io.Writer, q query) {
	if len(f.docs)+len(f.idle) == 0 {
		switch {
		case q.kind != "": // there is something wrong, which is told below
		case q.namespace != "":
			fmt.Fprintln(w, "no object of namespace "+q.namespace+" has a status")
		default:
			fmt.Fprintln(w, "no object has a status: there is no GatewayClass of ours, and no MeshConfig")
		}
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row(t, "OBJECT", "GENERATION", "CONDITIONS")
	for _, d := range f.docs {
		row(t, view.ObjectName(d), strconv.FormatInt(d.Generation, 10), conditions(d))
	}
	for _, o := range f.idle {
		row(t, o, "", "none")
	}
	_ = t.Flush()
}

// conditions is the object's own conditions, or those of each of its parents.
func conditions(d inspect.StatusDocument) string {
	parts, err := view.Parts(d)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, p := range parts {
		kind, name, _ := strings.Cut(p.Part, " ")
		switch kind {
		case "listener": // what is wrong with it is told below the table
		case "":
			out = append(out, view.Conditions(p.Conditions))
		default:
			out = append(out, name+": "+view.Conditions(p.Conditions))
		}
	}
	return strings.Join(out, "; ")
}

func printWhole(w io.Writer, docs []inspect.StatusDocument) error {
	for i, d := range docs {
		text, err := yaml.Marshal(d)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(w, "---")
		}
		fmt.Fprint(w, string(text))
	}
	return nil
}

// printList lists what there is below a heading. Each line begins with mark.
func printList(w io.Writer, mark, what string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s%d %s:\n", mark, len(list), what)
	for _, l := range list {
		fmt.Fprintf(w, "%s  %s\n", mark, view.OneLine(l))
	}
}

// String is the problem as one line: where it is, and what.
func (p problem) String() string {
	s := p.File
	if s == "" && p.Object == "" {
		s = "the directory of manifests"
	}
	if p.Document > 0 {
		s += fmt.Sprintf(" (document %d)", p.Document)
	}
	for _, more := range []string{p.Object, p.Path, p.Message} {
		switch {
		case more == "":
		case s == "":
			s = more
		default:
			s += ": " + more
		}
	}
	return s
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
