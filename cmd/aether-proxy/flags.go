package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/drain"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/otlpflag"
	"aether.io/aether/internal/port"
	"aether.io/aether/internal/scope"
	"aether.io/aether/internal/spiffeid"
)

// flags are the settings of one proxy. Where it finds the controller, and who that must
// be, has no default that would do.
type flags struct {
	endpoint, bootstrapEndpoint string
	tokenPath, bundlePath       string
	trustDomain, serverID       string
	proxyID, scope, clusterName string
	xdsSocket, adminSocket      string
	bootstrapPath, lastGoodDir  string
	inspectSocket               string
	inspectPort                 uint16
	metricsBind, healthBind     string
	drainSocket                 string
	drain                       drain.Terms
	otlp                        otlpflag.Flags
	otlpDiscovered              bool
	debug                       bool
}

func (f *flags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.endpoint, "discovery-endpoint", "", "the controller's stream listener, https://host:port (required)")
	s.StringVar(&f.bootstrapEndpoint, "discovery-bootstrap-endpoint", "", "the controller's bootstrap listener, https://host:port (required)")
	s.StringVar(&f.tokenPath, "discovery-sa-token-path", "/var/run/secrets/coxswain/discovery-token/token", "file of the token that proves who this pod is")
	s.StringVar(&f.bundlePath, "discovery-ca-bundle-path", "/var/run/secrets/coxswain/trust-bundle/ca.crt", "file of the roots that the controller must chain to")
	s.StringVar(&f.trustDomain, "discovery-trust-domain", "cluster.local", "trust domain; must match the controller's")
	s.StringVar(&f.serverID, "discovery-server-id", "", "SPIFFE ID of the controller (required)")
	s.StringVar(&f.proxyID, "proxy-id", "", "name of this pod, as the token proves it (required)")
	s.StringVar(&f.scope, "scope", "", "what to subscribe to: shared, or NAMESPACE/NAME of a dedicated Gateway (required)")
	s.StringVar(&f.clusterName, "cluster-name", "aether", "Envoy's own cluster name")
	s.StringVar(&f.xdsSocket, "xds-socket", "", "Unix socket to serve Envoy on (required)")
	s.StringVar(&f.adminSocket, "envoy-admin-socket", "", "Unix socket of Envoy's admin interface (required)")
	s.StringVar(&f.bootstrapPath, "envoy-bootstrap", "", "file to write Envoy's bootstrap to (required)")
	s.StringVar(&f.lastGoodDir, "last-good-dir", "", "directory for what ran last, so that a restart during an outage serves it (required)")
	s.StringVar(&f.inspectSocket, "inspect-socket", "", "Unix socket that answers read-only questions; this or --inspect-port is required")
	s.Uint16Var(&f.inspectPort, "inspect-port", 0, "port of loopback that answers read-only questions, in the place of --inspect-socket")
	s.StringVar(&f.metricsBind, "metrics-bind-address", "", "host:port of /metrics, the proxy's and Envoy's; empty: none")
	s.StringVar(&f.healthBind, "health-probe-bind-address", "", "host:port of /startz, /healthz, /readyz and /drained; empty: none")
	s.StringVar(&f.drainSocket, "drain-socket", "", "Unix socket by which \"aether-proxy drain\" has this proxy drain; empty: none")
	s.DurationVar(&f.drain.Delay, "drain-delay", 5*time.Second, "between not being ready any more and ending connections: for those who send traffic to learn it")
	s.DurationVar(&f.drain.Timeout, "drain-timeout", 45*time.Second, "from its begin, the delay included, after which a drain is over whatever is still connected; must be shorter than the pod's grace period")
	f.otlp.Register(s, otlpflag.Help{Enabled: "Envoy exports its own, unless it is to verify the collector by --otlp-ca-discovered"})
	s.BoolVar(&f.otlpDiscovered, otlpflag.ProxyAuthorities, false, "with --otlp-tls: the authorities of the collector's certificate are those that the controller sends, and nothing is exported before; else the system's")
	s.BoolVar(&f.debug, "debug", false, "log what is of use only to a developer")
	for _, name := range []string{
		"discovery-endpoint", "discovery-bootstrap-endpoint", "discovery-server-id", "proxy-id", "scope",
		"xds-socket", "envoy-admin-socket", "envoy-bootstrap", "last-good-dir",
	} {
		if err := cmd.MarkFlagRequired(name); err != nil {
			panic(err) // a name that is not registered above: a bug that no start survives
		}
	}
	cmd.MarkFlagsOneRequired("inspect-socket", "inspect-port")
	cmd.MarkFlagsMutuallyExclusive("inspect-socket", "inspect-port")
}

// check refuses values that parse but mean nothing.
func (f *flags) check() error {
	var errs []error
	for name, address := range map[string]string{"metrics-bind-address": f.metricsBind, "health-probe-bind-address": f.healthBind} {
		if address == "" {
			continue
		}
		if err := port.Check(address); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", name, err))
		}
	}
	if f.inspectSocket == "" && f.inspectPort == 0 {
		errs = append(errs, errors.New("--inspect-port 0 is no port"))
	}
	if f.drain.Delay < 0 || f.drain.Timeout <= f.drain.Delay {
		errs = append(errs, fmt.Errorf("--drain-timeout %s is not longer than --drain-delay %s", f.drain.Timeout, f.drain.Delay))
	}
	if _, err := f.subscription(); err != nil {
		errs = append(errs, err)
	}
	if _, err := spiffeid.ParseTrustDomain(f.trustDomain); err != nil {
		errs = append(errs, fmt.Errorf("--discovery-trust-domain: %w", err))
	}
	if _, err := gospiffeid.FromString(f.serverID); err != nil {
		errs = append(errs, fmt.Errorf("--discovery-server-id: %w", err))
	}
	if f.otlpDiscovered {
		f.otlp.Authorities = envoy.CollectorName
	}
	if err := f.otlp.Check(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// systemAuthorities is beside Envoy, in its image.
const systemAuthorities = "/etc/ssl/certs/ca-certificates.crt"

// collector is where Envoy's metrics go; nil: nowhere.
func (f *flags) collector() *envoy.Collector {
	host, number := f.otlp.Target()
	if host == "" || !f.otlp.Enabled || f.otlpDiscovered {
		return nil
	}
	c := &envoy.Collector{Host: host, Port: number}
	if f.otlp.TLS {
		c.TLS = envoy.CollectorTLS(cmp.Or(f.otlp.ServerName, host), systemAuthorities)
	}
	return c
}

// subscription is the scope that was asked for. There is no default.
func (f *flags) subscription() (scope.Scope, error) {
	if f.scope == "shared" {
		return scope.SharedPool(), nil
	}
	namespace, name, found := strings.Cut(f.scope, "/")
	if !found {
		return scope.Scope{}, errors.New("--scope: want shared, or NAMESPACE/NAME of a Gateway")
	}
	s, err := scope.Gateway(namespace, name)
	if err != nil {
		return scope.Scope{}, fmt.Errorf("--scope %q: %w", f.scope, err)
	}
	return s, nil
}
