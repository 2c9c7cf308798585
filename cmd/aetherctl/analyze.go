package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/otlpflag"
	"aether.io/aether/internal/remote"
	"aether.io/aether/internal/source/dossier"
	"aether.io/aether/internal/standalone/view"
)

// controllerName is whose GatewayClasses are ours.
const controllerName = "config.aether.io/gateway-controller"

// analysis is what is to be analyzed, and what is done with what is found.
type analysis struct {
	c      analyze.Config
	all    bool   // a cluster, and no files
	at     target // which
	failOn string
	ignore []string
	output string
}

func analyzeCommand() *cobra.Command {
	var a analysis
	cmd := &cobra.Command{
		Use:     "analyze FILE|DIR|-...|-A",
		Aliases: []string{"check"},
		Short:   "Find what is wrong with manifests before they are applied, or with a cluster",
		Long: `Analyze manifests: the Gateway API's, MeshConfigs, and what they refer to. Files, folders with
all .yaml, .yml and .json files below them, and the standard input (-) can be named. Documents
are checked as an API server would, and then the controller's own routing graph is run over
them: what it would write into their statuses is what is reported, and lints of what no status
says. Nothing is asked of a cluster.

With -A the objects of a cluster are analyzed, with your own rights to list them, and by the
settings of the controller there if it can be asked. What you may not list is told, and taken to
be there.

Each finding has a code, which "aetherctl explain CODE" explains and which never changes its
meaning, and the file, the line and the field, where they are known.

What is referred to and not among the manifests is taken to be there and good, and told as
info, unless --complete says that they are all there is.

Exit status: 0 if there is nothing, 1 if there is a finding as bad as --fail-on, 2 if the
manifests could not be analyzed.`,
		Example: `  aetherctl analyze deploy/
  kustomize build . | aetherctl analyze -
  aetherctl analyze --fail-on warning --ignore AET1206 deploy/
  aetherctl analyze -A --context production
  aetherctl analyze --complete --standalone examples/quickstart`,
		Annotations: map[string]string{trouble: "2"},
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case a.all && len(args) > 0:
				return errors.New("-A analyzes a cluster: name no files")
			case !a.all && len(args) == 0:
				return errors.New("analyze what? Name files or folders, - for the standard input, or -A for a cluster")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			a.c.SystemKnown = slices.ContainsFunc(system, cmd.Flags().Changed)
			if err := a.check(); err != nil {
				return err
			}
			if err := a.checkSystem(); err != nil {
				return err
			}
			reader, err := dossier.New(cmd.InOrStdin())
			if err != nil {
				return err
			}
			var documents []analyze.Document
			if a.all {
				documents, err = a.cluster(cmd.Context(), reader, cmd.ErrOrStderr())
			} else if documents, err = reader.Read(cmd.Context(), args); err == nil && len(documents) == 0 {
				err = fmt.Errorf("there is no manifest in %s", strings.Join(args, ", "))
			}
			if err != nil {
				return err
			}
			return a.report(cmd.OutOrStdout(), documents)
		},
	}
	s := cmd.Flags()
	s.BoolVarP(&a.all, "all", "A", false, "analyze the objects of all namespaces of a cluster")
	s.StringVar(&a.at.kubeconfig, "kubeconfig", "", "with -A: the file that says how to reach the cluster (default: as kubectl)")
	s.StringVar(&a.at.context, "context", "", "with -A: the context of the kubeconfig (default: its current one)")
	s.BoolVar(&a.c.Complete, "complete", false, "the manifests are all that there is: what they refer to and lack is an error")
	s.BoolVar(&a.c.Standalone, "standalone", false, "judge as for \"aetherctl standalone\": ports are bound as they are, and selectors of Services select nothing")
	s.Uint32Var(&a.c.PortOffset, "port-offset", 0, "with --standalone: added to the port of each listener")
	s.StringVar(&a.c.ReleaseNamespace, "release-namespace", remote.DefaultNamespace, "the namespace whose MeshConfig every other inherits")
	s.BoolVar(&a.c.System.OTelEnabled, "otel-enabled", false, "what a MeshConfig inherits, as the controller's flag: otel.enabled")
	s.StringVar(&a.c.System.OTelEndpoint, "otlp-endpoint", "", "the same: otel.endpoint")
	s.BoolVar(&a.c.System.OTelLogs, "logs-enabled", false, "the same: otel.logs")
	s.Float64Var(&a.c.System.TraceSampleRate, "trace-sample-rate", otlpflag.DefaultSampleRate, "the same: otel.traceSampleRate")
	s.BoolVar(&a.c.System.TraceExport, "trace-export", false, "the same: otel.traceExport")
	s.StringVar(&a.failOn, "fail-on", string(code.Error), "exit with 1 for findings that are as bad or worse: error, warning, info or never")
	s.StringSliceVar(&a.ignore, "ignore", nil, "codes that are not reported")
	outputFlag(cmd, &a.output, ", a list of findings")
	for _, only := range []string{"standalone", "complete", "port-offset"} {
		cmd.MarkFlagsMutuallyExclusive("all", only)
	}
	return cmd
}

// system is the flags that say what MeshConfigs inherit.
var system = []string{"otel-enabled", "otlp-endpoint", "logs-enabled", "trace-sample-rate", "trace-export"}

// checkSystem refuses what no installation would take.
func (a *analysis) checkSystem() error {
	errs := []error{otlpflag.CheckSampleRate(a.c.System.TraceSampleRate)}
	if a.c.System.OTelEndpoint != "" {
		errs = append(errs, otlpflag.CheckEndpoint(a.c.System.OTelEndpoint))
	}
	return errors.Join(errs...)
}

// cluster reads the objects of a cluster. What else there is to know is said on the side.
func (a *analysis) cluster(ctx context.Context, reader *dossier.Reader, side io.Writer) ([]analyze.Document, error) {
	a.at.release = a.c.ReleaseNamespace
	i, err := a.at.dialCluster()
	if err != nil {
		return nil, err
	}
	defer i.controller.Close()
	a.c.Live, a.c.Unlisted = true, map[object.Kind]string{}
	var out []analyze.Document
	for _, c := range dossier.Collections() {
		items, err := i.cluster.List(ctx, c.Path, c.Selector)
		if why, is := errors.AsType[*remote.NotListedError](err); is {
			a.c.Unlisted[c.Kind] = why.Error()
			continue
		}
		if err != nil {
			return nil, err
		}
		documents, err := reader.Live(ctx, c.Kind, items)
		if err != nil {
			return nil, err
		}
		out = append(out, documents...)
	}
	if a.c.SystemKnown {
		return out, nil
	}
	var live inspect.Config
	if err := i.controller.Get(ctx, inspect.ConfigPath, &live); err != nil {
		fmt.Fprintf(side, "aetherctl: what MeshConfigs inherit is taken to be the defaults: %v\n", i.explain(err))
		return out, nil
	}
	a.c.System, a.c.SystemKnown = live.System.Inherited(), true
	return out, nil
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
