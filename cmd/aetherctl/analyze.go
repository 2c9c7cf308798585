package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/remote"
	"aether.io/aether/internal/source/dossier"
	"aether.io/aether/internal/standalone/view"
)

// controllerName is whose GatewayClasses are ours.
const controllerName = "config.aether.io/gateway-controller"

// analysis is what is to be analyzed, and what is done with what is found.
type analysis struct {
	c      analyze.Config
	failOn string
	ignore []string
	output string
}

func analyzeCommand() *cobra.Command {
	var a analysis
	cmd := &cobra.Command{
		Use:     "analyze FILE|DIR|-...",
		Aliases: []string{"check"},
		Short:   "Find what is wrong with manifests before they are applied",
		Long: `Analyze manifests: the Gateway API's, MeshConfigs, and what they refer to. Files, folders with
all .yaml, .yml and .json files below them, and the standard input (-) can be named. Documents
are checked as an API server would, and then the controller's own routing graph is run over
them: what it would write into their statuses is what is reported, and lints of what no status
says. Nothing is asked of a cluster.

Each finding has a code, which "aetherctl explain CODE" explains and which never changes its
meaning, and the file, the line and the field, where they are known.

What is referred to and not among the manifests is taken to be there and good, and told as
info, unless --complete says that they are all there is.

Exit status: 0 if there is nothing, 1 if there is a finding as bad as --fail-on, 2 if the
manifests could not be analyzed.`,
		Example: `  aetherctl analyze deploy/
  kustomize build . | aetherctl analyze -
  aetherctl analyze --fail-on warning --ignore AET1206 deploy/
  aetherctl analyze --complete --standalone examples/quickstart`,
		Annotations: map[string]string{trouble: "2"},
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("analyze what? Name files or folders, or - for the standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), args, cmd.Flags().Changed)
		},
	}
	s := cmd.Flags()
	s.BoolVar(&a.c.Complete, "complete", false, "the manifests are all that there is: what they refer to and lack is an error")
	s.BoolVar(&a.c.Standalone, "standalone", false, "judge as for \"aetherctl standalone\": ports are bound as they are, and selectors of Services select nothing")
	s.Uint32Var(&a.c.PortOffset, "port-offset", 0, "with --standalone: added to the port of each listener")
	s.StringVar(&a.c.ReleaseNamespace, "release-namespace", remote.DefaultNamespace, "the namespace whose MeshConfig every other inherits")
	s.BoolVar(&a.c.System.OTelEnabled, "otel-enabled", false, "what a MeshConfig inherits, as the controller's flag: otel.enabled")
	s.StringVar(&a.c.System.OTelEndpoint, "otlp-endpoint", "", "the same: otel.endpoint")
	s.BoolVar(&a.c.System.OTelLogs, "logs-enabled", false, "the same: otel.logs")
	s.Float64Var(&a.c.System.TraceSampleRate, "trace-sample-rate", 0.1, "the same: otel.traceSampleRate")
	s.BoolVar(&a.c.System.TraceExport, "trace-export", false, "the same: otel.traceExport")
	s.StringVar(&a.failOn, "fail-on", string(code.Error), "exit with 1 for findings that are as bad or worse: error, warning, info or never")
	s.StringSliceVar(&a.ignore, "ignore", nil, "codes that are not reported")
	outputFlag(cmd, &a.output, ", a list of findings")
	return cmd
}

// system is the flags that say what MeshConfigs inherit.
var system = []string{"otel-enabled", "otlp-endpoint", "logs-enabled", "trace-sample-rate", "trace-export"}

// run analyzes what is named. given reports whether a flag was.
func (a *analysis) run(ctx context.Context, in io.Reader, out io.Writer, names []string, given func(string) bool) error {
	if err := a.check(); err != nil {
		return err
	}
	a.c.SystemKnown = slices.ContainsFunc(system, given)
	reader, err := dossier.New(in)
	if err != nil {
		return err
	}
	documents, err := reader.Read(ctx, names)
	if err != nil {
		return err
	}
	if len(documents) == 0 {
		return fmt.Errorf("there is no manifest in %v", names)
	}
	return a.report(out, documents)
}

func (a *analysis) check() error {
	if err := checkOutput(a.output); err != nil {
		return err
	}
	if !slices.Contains([]string{string(code.Error), string(code.Warning), string(code.Info), "never"}, a.failOn) {
		return fmt.Errorf("--fail-on %q is none of error, warning, info, never", a.failOn)
	}
	for _, id := range a.ignore {
		if _, err := code.Find(id); err != nil {
			return fmt.Errorf("--ignore: %w", err)
		}
	}
	a.c.ControllerName, a.c.Now = controllerName, time.Now()
	return nil
}

// report analyzes documents and says what is found.
func (a *analysis) report(out io.Writer, documents []analyze.Document) error {
	list, err := analyze.Run(a.c, documents)
	if err != nil {
		return err
	}
	list = keep(list, func(f analyze.Finding) bool {
		return !slices.ContainsFunc(a.ignore, func(id string) bool { c, _ := code.Find(id); return c.ID == f.Code })
	})
	if a.output == "json" {
		if err := printJSON(out, append([]analyze.Finding{}, list...)); err != nil {
			return err
		}
	} else {
		for _, f := range list {
			fmt.Fprintln(out, view.OneLine(line(f)))
		}
		fmt.Fprintln(out, summary(list, len(documents)))
	}
	if n := len(keep(list, func(f analyze.Finding) bool {
		return a.failOn != "never" && f.Severity.AtLeast(code.Severity(a.failOn))
	})); n > 0 {
		return found{fmt.Errorf("%s as bad as --fail-on %s", view.Plural(n, "finding"), a.failOn)}
	}
	return nil
}

// line is a finding as compilers write them, so that editors find the place.
func line(f analyze.Finding) string {
	at := f.File
	if f.Line > 0 {
		at += fmt.Sprintf(":%d", f.Line)
	}
	if at != "" {
		at += ": "
	}
	text := fmt.Sprintf("%s%s %s", at, f.Severity, f.Code)
	for _, more := range []string{f.Object, f.Path, f.Message} {
		if more != "" {
			text += ": " + more
		}
	}
	return text
}

// summary counts findings.
func summary(list []analyze.Finding, documents int) string {
	count := map[code.Severity]int{}
	for _, f := range list {
		count[f.Severity]++
	}
	return fmt.Sprintf("%s analyzed: %s, %s, %d info", view.Plural(documents, "document"),
		view.Plural(count[code.Error], "error"), view.Plural(count[code.Warning], "warning"), count[code.Info])
}
