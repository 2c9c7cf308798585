// Command conform runs the Gateway API's own conformance suite, which is the module
// test/conformance, on the test cluster: once or several times, on the same cluster, each of
// which must leave it as it was. What the suite reports must be what is claimed. It is to be
// run in the repository's root.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/test/cluster"
)

// module is where the suite is built from, and its module's name there.
const (
	module = "test/conformance"
	suite  = "sigs.k8s.io/gateway-api/conformance"
)

// settings are what one call does.
type settings struct {
	dir     string // the cluster's folder
	out     string // what is made on the way: programs, images, logs
	report  string // where the last run's report is kept
	only    string // the tests to run, as go test takes them; then there is no report
	version string
	runs    int
}

func main() {
	s := settings{}
	flag.StringVar(&s.dir, "dir", ".build/cluster", "the cluster's folder")
	flag.StringVar(&s.out, "out", ".build/conformance", "folder for programs, images and logs")
	flag.StringVar(&s.report, "report", module+"/report.yaml", "file for the report of the last run")
	flag.StringVar(&s.only, "run", "", "the tests to run, a regular expression; empty: all, with a report")
	flag.StringVar(&s.version, "version", "dev", "the version that the report is about")
	flag.IntVar(&s.runs, "runs", 2, "how often, in a row")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := conform(ctx, s); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1) //nolint:gocritic // the context has no use any more
	}
}

func conform(ctx context.Context, s settings) error {
	if s.runs < 1 {
		return fmt.Errorf("-runs %d: want one at least", s.runs)
	}
	c, err := cluster.In(s.dir)
	if err != nil {
		return err
	}
	if s.out, err = filepath.Abs(s.out); err != nil {
		return err
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	if err := load(ctx, c, s.out); err != nil {
		return err
	}
	program := filepath.Join(s.out, "suite.test")
	if err := goTool(ctx, nil, "test", "-c", "-o", program, "."); err != nil {
		return err
	}
	before, err := inventory(ctx, c)
	if err != nil {
		return err
	}
	for n := 1; n <= s.runs; n++ {
		began := time.Now()
		r := run{program: program, kubeconfig: c.Kubeconfig(), only: s.only, version: s.version, log: filepath.Join(s.out, fmt.Sprintf("run-%d.log", n))}
		if s.only == "" {
			r.report = filepath.Join(s.out, "report.yaml")
		}
		fmt.Printf("run %d of %d, log in %s\n", n, s.runs, r.log)
		failed := r.do(ctx)
		if err := errors.Join(failed, awaitInventory(ctx, c, before)); err != nil {
			return fmt.Errorf("run %d: %w", n, err)
		}
		fmt.Printf("run %d passed and left nothing, after %s\n", n, time.Since(began).Round(time.Second))
	}
	if s.only != "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(s.out, "report.yaml"))
	if err != nil {
		return err
	}
	if err := check(text); err != nil {
		return fmt.Errorf("the report: %w", err)
	}
	return atomicfile.Write(s.report, text, 0o644)
}
