package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"aether.io/aether/test/cluster/network"
)

// limit is how long one run may take; it takes a fifth of that on two busy cores.
const limit = time.Hour

// The addresses that Gateways ask for: the last of what the cluster has for LoadBalancer
// Services, which are given from the first on, and one that it does not have.
var (
	usable   = last(network.Pool)
	unusable = netip.MustParseAddr("192.0.2.1") // nobody's: for documents (RFC 5737)
)

func last(p netip.Prefix) netip.Addr {
	a := p.Masked().Addr()
	for p.Contains(a.Next()) {
		a = a.Next()
	}
	return a
}

// run is one run of the suite.
type run struct {
	program, kubeconfig string
	only, version       string
	log, report         string // report may be empty: none
}

// verdict is what the suite prints of a test, by its hook.
var verdict = regexp.MustCompile(`^conformance: (PASS|FAIL) (\S+)$`)

// do runs the suite and tells of each test when it is over. The error names those that failed.
func (r run) do(ctx context.Context) error {
	log, err := os.Create(r.log)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{
		"-test.v", "-test.timeout=" + limit.String(),
		"-usable-address=" + usable.String(), "-unusable-address=" + unusable.String(),
		"-version=" + r.version,
	}
	if r.only != "" {
		args = append(args, "-test.run=^TestConformance$/"+r.only)
	}
	if r.report != "" {
		if err := os.Remove(r.report); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		args = append(args, "-report-output="+r.report)
	}
	cmd := exec.CommandContext(ctx, r.program, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+r.kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	failed, passed, err := follow(io.TeeReader(out, log))
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("%w; failed: %s; log in %s", err, strings.Join(failed, ", "), r.log)
	}
	if passed == 0 {
		return fmt.Errorf("no test ran; log in %s", r.log)
	}
	return nil
}

// follow reads what the suite prints until it ends.
func follow(out io.Reader) (failed []string, passed int, err error) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20) // with an object in it, a line is long
	for lines.Scan() {
		m := verdict.FindStringSubmatch(lines.Text())
		switch {
		case m == nil:
			continue
		case m[1] == "FAIL":
			failed = append(failed, m[2])
		default:
			passed++
		}
		fmt.Printf("%s %s\n", m[1], m[2])
	}
	return failed, passed, lines.Err()
}
