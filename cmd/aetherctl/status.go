package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone"
)

func statusCommand() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "status [KIND [[NAMESPACE/]NAME]]",
		Short: "Show the status of objects, and what is wrong with them and with the manifests",
		Long: `Show the status of every object that has one, or of one kind, or of one object whole.
Below it is what is not as it should be: conditions with their reasons, and, if no kind
is named, files and objects that could not be taken.

An object that no GatewayClass of ours leads to has no status, and is not shown.`,
		Example: `  aetherctl status
  aetherctl status httproutes
  aetherctl status httproute shop
  aetherctl status HTTPRoute/default/shop -o json`,
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
			var all inspect.Statuses
			if err := i.controller.Get(cmd.Context(), inspect.StatusPath, &all); err != nil {
				return i.explain(err)
			}
			args = splitName(args)
			docs, err := pick(all.Documents, args)
			if err != nil {
				return err
			}
			if t.output == "json" {
				return printJSON(cmd.OutOrStdout(), docs)
			}
			if len(args) == 2 {
				return printWhole(cmd.OutOrStdout(), docs)
			}
			var problems []problem
			if len(args) == 0 {
				if err := i.controller.Get(cmd.Context(), inspect.ProblemsPath, &problems); err != nil {
					return i.explain(err)
				}
			}
			printStatuses(cmd.OutOrStdout(), docs)
			printToLookAt(cmd.OutOrStdout(), docs, problems)
			return nil
		},
	}
	t.flags(cmd)
	return cmd
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

// splitName takes Kind/namespace/name, as tables print it, for a kind and a name.
func splitName(args []string) []string {
	if len(args) != 1 {
		return args
	}
	kind, name, both := strings.Cut(args[0], "/")
	if !both {
		return args
	}
	return []string{kind, name}
}

// pick chooses documents by kind and name; one that was asked for must exist.
func pick(docs []inspect.StatusDocument, args []string) ([]inspect.StatusDocument, error) {
	if len(args) == 0 {
		return docs, nil
	}
	namespace, name := "", ""
	if len(args) == 2 {
		namespace, name, _ = strings.Cut(args[1], "/")
		if name == "" {
			namespace, name = "", namespace
		}
	}
	var out []inspect.StatusDocument
	for _, d := range docs {
		if !sameKind(d.Kind, args[0]) || name != "" && (d.Name != name || namespace != "" && d.Namespace != namespace) {
			continue
		}
		out = append(out, d)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no object of that kind and name has a status: %s; there are %s", strings.Join(args, " "), or(strings.Join(kinds(docs), ", "), "none"))
	}
	return out, nil
}

// kinds lists the kinds of docs, each once.
func kinds(docs []inspect.StatusDocument) []string {
	var out []string
	for _, d := range docs {
		out = append(out, d.Kind)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func or(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

// sameKind takes a kind as people type it: any case, singular or plural.
func sameKind(kind, typed string) bool {
	kind, typed = strings.ToLower(kind), strings.ToLower(typed)
	return typed == kind || typed == kind+"s" || typed == kind+"es"
}

func printStatuses(w io.Writer, docs []inspect.StatusDocument) {
	if len(docs) == 0 {
		fmt.Fprintln(w, "no object has a status: there is no GatewayClass of ours, and no MeshConfig")
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	row(t, "OBJECT", "GENERATION", "CONDITIONS")
	for _, d := range docs {
		row(t, standalone.ObjectName(d), strconv.FormatInt(d.Generation, 10), conditions(d))
	}
	_ = t.Flush()
}

// conditions is the object's own conditions, or those of each of its parents.
func conditions(d inspect.StatusDocument) string {
	parts, err := standalone.Parts(d)
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, p := range parts {
		kind, name, _ := strings.Cut(p.Part, " ")
		switch kind {
		case "listener": // what is wrong with it is told below the table
		case "":
			out = append(out, standalone.Conditions(p.Conditions))
		default:
			out = append(out, name+": "+standalone.Conditions(p.Conditions))
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

// printToLookAt lists what is wrong with objects and with files.
func printToLookAt(w io.Writer, docs []inspect.StatusDocument, problems []problem) {
	var list []string
	for _, d := range docs {
		for _, t := range standalone.Trouble(d) {
			list = append(list, standalone.ObjectName(d)+": "+t)
		}
	}
	var unread []string
	for _, p := range problems {
		if p.Severity == ignored {
			unread = append(unread, p.String())
		} else {
			list = append(list, p.String())
		}
	}
	printList(w, "to look at", list)
	printList(w, "not read, which Aether has no use for", unread)
}

func printList(w io.Writer, what string, list []string) {
	if len(list) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d %s:\n", len(list), what)
	for _, l := range list {
		fmt.Fprintf(w, "  %s\n", standalone.OneLine(l))
	}
}

// String is the problem as one line: where it is, and what.
func (p problem) String() string {
	s := p.File
	if s == "" {
		s = "the directory of manifests"
	}
	if p.Document > 0 {
		s += fmt.Sprintf(" (document %d)", p.Document)
	}
	for _, more := range []string{p.Object, p.Path, p.Message} {
		if more != "" {
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
