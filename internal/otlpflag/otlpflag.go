// Package otlpflag is the flags by which every component is told what it exports to the
// OpenTelemetry Collector, where that is and how it is reached. It exports nothing.
package otlpflag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"aether.io/aether/internal/envoy/check"
)

// DefaultSampleRate is that of traces.
const DefaultSampleRate = 0.1

// Flags are the collector as flags say it, and what goes there.
type Flags struct {
	Enabled     bool // anything goes there at all, metrics if nothing else
	Logs        bool
	TraceExport bool
	SampleRate  float64 // of traces, 0..1

	Endpoint    string // host:port; empty: there is none
	TLS         bool
	ServerName  string // empty: the endpoint's host
	Authorities string // where the authorities are, of a flag of the program's own; empty: the system's
}

// Help is what a program says of those flags that mean more in it than what it exports itself.
type Help struct {
	Enabled, Logs, SampleRate, TraceExport string // follow ". "; empty: nothing more
}

// Register adds the flags.
func (f *Flags) Register(s *pflag.FlagSet, more Help) {
	also := func(text, more string) string {
		if more == "" {
			return text
		}
		return text + ". " + more
	}
	s.BoolVar(&f.Enabled, "otel-enabled", false, also("export this process's metrics by OTLP, beside /metrics, if there is an --otlp-endpoint", more.Enabled))
	s.BoolVar(&f.Logs, "logs-enabled", false, also("with --otel-enabled: its logs too, beside standard error", more.Logs))
	s.BoolVar(&f.TraceExport, "trace-export", false, also("with --otel-enabled: its traces too", more.TraceExport))
	s.Float64Var(&f.SampleRate, "trace-sample-rate", DefaultSampleRate, also("fraction of its traces that are exported, 0..1", more.SampleRate))
	s.StringVar(&f.Endpoint, "otlp-endpoint", "", "OpenTelemetry Collector, OTLP over gRPC, host:port; empty: nothing is exported")
	s.BoolVar(&f.TLS, "otlp-tls", false, "speak to the collector by TLS")
	s.StringVar(&f.ServerName, "otlp-server-name", "", "with --otlp-tls: the name that the collector's certificate must be for; empty: the endpoint's host")
}

// Check tells what is wrong with them, flag by flag.
func (f *Flags) Check() error {
	errs := []error{CheckSampleRate(f.SampleRate)}
	if f.Endpoint == "" {
		if f.TLS || f.ServerName != "" || f.Authorities != "" {
			errs = append(errs, errors.New("--otlp-tls and what goes with it are for an --otlp-endpoint, and there is none"))
		}
		return errors.Join(errs...)
	}
	if err := CheckEndpoint(f.Endpoint); err != nil {
		return errors.Join(append(errs, err)...)
	}
	host, _ := f.Target()
	if !f.TLS && (f.ServerName != "" || f.Authorities != "") {
		errs = append(errs, errors.New("a server name or authorities of the collector are given without --otlp-tls, which they are for"))
	}
	if _, err := netip.ParseAddr(host); err == nil && f.TLS && f.ServerName == "" {
		errs = append(errs, fmt.Errorf("--otlp-endpoint %q is an address, which no certificate's name is compared with: give --otlp-server-name", f.Endpoint))
	}
	return errors.Join(errs...)
}

// CheckEndpoint tells what is wrong with an --otlp-endpoint that is given.
func CheckEndpoint(endpoint string) error {
	host, port, err := net.SplitHostPort(endpoint)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || bad != nil || number == 0 {
		return fmt.Errorf("--otlp-endpoint %q is not host:port", endpoint)
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() == "" {
		return nil
	}
	err = check.Host(host)
	if err == nil && strings.Contains(host, "*") {
		err = errors.New("it is a pattern")
	}
	if err != nil {
		return fmt.Errorf("--otlp-endpoint %q: the host is neither a name nor an address: %w", endpoint, err)
	}
	return nil
}

// CheckSampleRate tells what is wrong with a --trace-sample-rate.
func CheckSampleRate(rate float64) error {
	if rate >= 0 && rate <= 1 { // so that what is no number is refused
		return nil
	}
	return fmt.Errorf("--trace-sample-rate %g is not in 0..1", rate)
}

// Target is the endpoint's host and port; empty: there is none. The flags are checked.
func (f *Flags) Target() (host string, port uint32) {
	host, text, _ := net.SplitHostPort(f.Endpoint)
	number, _ := strconv.ParseUint(text, 10, 16)
	return host, uint32(number)
}
