package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/analyze/code"
)

// explanation is a code as programs read it.
type explanation struct {
	Code     code.ID       `json:"code"`
	Severity code.Severity `json:"severity"` // what it is mostly
	Title    string        `json:"title"`
	Meaning  string        `json:"meaning"`
	Mend     string        `json:"mend"`
	Scope    code.Scope    `json:"scope,omitempty"`   // what must be known for it to be found
	Example  string        `json:"example,omitempty"` // manifests that have it
	Mended   string        `json:"mended,omitempty"`  // the same, mended
}

func explained(list []code.Code) []explanation {
	out := []explanation{}
	for _, c := range list {
		wrong, right := c.Example()
		out = append(out, explanation{c.ID, c.Severity, c.Title, c.Meaning, c.Mend, c.Scope, wrong, right})
	}
	return out
}

func explainCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain a code of aetherctl analyze: what it means, an example, how to mend it",
		Long: `Explain a code that "aetherctl analyze" reports: what it means, how to mend it, and an example
that has it, with the same mended. Without a code all are listed. A code never changes its
meaning; one that is not reported any more is not used again.`,
		Example: `  aetherctl explain
  aetherctl explain AET4001`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var out []string
			for _, c := range code.All() {
				out = append(out, string(c.ID)+"\t"+c.Title)
			}
			return out, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			list, out := code.All(), cmd.OutOrStdout()
			if len(args) == 1 {
				c, err := code.Find(args[0])
				if err != nil {
					return fmt.Errorf("%w: \"aetherctl explain\" lists those that there are", err)
				}
				if list = []code.Code{c}; output == "" {
					_, err = fmt.Fprint(out, c)
					return err
				}
			}
			if output == "json" {
				return printJSON(out, explained(list))
			}
			t := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
			row(t, "CODE", "SEVERITY", "MEANS")
			for _, c := range list {
				row(t, string(c.ID), string(c.Severity), c.Title)
			}
			return t.Flush()
		},
	}
	outputFlag(cmd, &output, "")
	return cmd
}
