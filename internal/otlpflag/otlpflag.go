// Package otlpflag is the flags by which every component is told where the OpenTelemetry
// Collector is and how it is reached. It exports nothing.
package otlpflag

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/spf13/pflag"
)

// Flags are the collector as flags say it.
type Flags struct {
	Endpoint    string // host:port; empty: there is none
	TLS         bool
	ServerName  string // empty: the endpoint's host
	Authorities string // where the authorities are, of a flag of the program's own; empty: the system's
}

// Register adds the flags.
func (f *Flags) Register(s *pflag.FlagSet) {
	s.StringVar(&f.Endpoint, "otlp-endpoint", "", "OpenTelemetry Collector, OTLP over gRPC, host:port; empty: nothing is exported")
	s.BoolVar(&f.TLS, "otlp-tls", false, "speak to the collector by TLS")
	s.StringVar(&f.ServerName, "otlp-server-name", "", "with --otlp-tls: the name that the collector's certificate must be for; empty: the endpoint's host")
}

// Check tells what is wrong with them, flag by flag.
func (f *Flags) Check() error {
	var errs []error
	if f.Endpoint == "" {
		if f.TLS || f.ServerName != "" || f.Authorities != "" {
			errs = append(errs, errors.New("--otlp-tls and what goes with it are for an --otlp-endpoint, and there is none"))
		}
		return errors.Join(errs...)
	}
	host, port, err := net.SplitHostPort(f.Endpoint)
	number, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || bad != nil || number == 0 {
		return fmt.Errorf("--otlp-endpoint %q is not host:port", f.Endpoint)
	}
	if !f.TLS && (f.ServerName != "" || f.Authorities != "") {
		errs = append(errs, errors.New("a server name or authorities of the collector are given without --otlp-tls, which they are for"))
	}
	if _, err := netip.ParseAddr(host); err == nil && f.TLS && f.ServerName == "" {
		errs = append(errs, fmt.Errorf("--otlp-endpoint %q is an address, which no certificate's name is compared with: give --otlp-server-name", f.Endpoint))
	}
	return errors.Join(errs...)
}

// Target is the endpoint's host and port; empty: there is none. The flags are checked.
func (f *Flags) Target() (host string, port uint32) {
	host, text, _ := net.SplitHostPort(f.Endpoint)
	number, _ := strconv.ParseUint(text, 10, 16)
	return host, uint32(number)
}
