package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone"
)

func statusCommand() *cobra.Command {
	var state, dir, output string
	cmd := &cobra.Command{
		Use:   "status [KIND [[NAMESPACE/]NAME]]",
		Short: "Show the status of objects, and what is wrong with the manifests",
		Long: `Show the status of every object that has one, or of one kind, or of one object whole.
Without arguments, files and objects that could not be taken are listed too.`,
		Args: cobra.MaximumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := dial(state, dir)
			if err != nil {
				return err
			}
			defer c.controller.Close()
			var all inspect.Statuses
			if err := c.controller.Get(cmd.Context(), inspect.StatusPath, &all); err != nil {
				return c.explain(err)
			}
			docs, err := pick(all.Documents, args)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), docs)
			}
			if len(args) == 2 {
				return printWhole(cmd.OutOrStdout(), docs)
			}
			printStatuses(cmd.OutOrStdout(), docs)
			if len(args) > 0 {
				return nil
			}
			var problems []problem
			if err := c.controller.Get(cmd.Context(), inspect.ProblemsPath, &problems); err != nil {
				return c.explain(err)
			}
			printProblems(cmd.OutOrStdout(), problems)
			return nil
		},
	}
	target(cmd, &state, &dir, &output)
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
		return nil, fmt.Errorf("no status of %s", strings.Join(args, " "))
	}
	return out, nil
}

// sameKind takes a kind as people type it: any case, singular or plural.
func sameKind(kind, typed string) bool {
	kind, typed = strings.ToLower(kind), strings.ToLower(typed)
	return typed == kind || typed == kind+"s" || typed == kind+"es"
}

func printStatuses(w io.Writer, docs []inspect.StatusDocument) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "OBJECT\tGENERATION\tCONDITIONS")
	for _, d := range docs {
		fmt.Fprintf(t, "%s\t%d\t%s\n", docName(d), d.Generation, conditions(d))
	}
	_ = t.Flush()
}

func docName(d inspect.StatusDocument) string {
	return strings.Join(strings.FieldsFunc(d.Kind+"/"+d.Namespace+"/"+d.Name, func(r rune) bool { return r == '/' }), "/")
}

// conditions is the object's own conditions, or those of each of its parents.
func conditions(d inspect.StatusDocument) string {
	var s struct {
		Conditions []metav1.Condition
		Parents    []struct {
			ParentRef  struct{ Name, SectionName string }
			Conditions []metav1.Condition
		}
	}
	if err := json.Unmarshal(d.Status, &s); err != nil {
		return err.Error()
	}
	part := []string{}
	if len(s.Conditions) > 0 {
		part = append(part, standalone.Conditions(s.Conditions))
	}
	for _, p := range s.Parents {
		name := p.ParentRef.Name
		if p.ParentRef.SectionName != "" {
			name += "/" + p.ParentRef.SectionName
		}
		part = append(part, name+": "+standalone.Conditions(p.Conditions))
	}
	return strings.Join(part, "; ")
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

func printProblems(w io.Writer, problems []problem) {
	if len(problems) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d to look at:\n", len(problems))
	for _, p := range problems {
		where := p.File
		if p.Document > 0 {
			where += fmt.Sprintf(" (document %d)", p.Document)
		}
		for _, s := range []string{p.Object, p.Path} {
			if s != "" {
				where += ": " + s
			}
		}
		fmt.Fprintf(w, "  %s: %s\n", where, p.Message)
	}
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
