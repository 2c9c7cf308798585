package main

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/labels"

	cakube "aether.io/aether/internal/ca/kube"
	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/otlpflag"
	"aether.io/aether/internal/port"
	"aether.io/aether/internal/provision"
	"aether.io/aether/internal/routing"
	sourcekube "aether.io/aether/internal/source/kube"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/webhook"
)

// flags are the settings of one controller.
type flags struct {
	directory, stateDir   string // standalone: both; else neither
	kubeconfig            string
	proxySelector         string
	proxyTemplate         string
	sharedMemory          string // a quantity
	sharedBytes           int64  // the same, checked
	proxyOverlap          time.Duration
	caMode, caSecret      string
	discoveryBind         string
	streamPort            uint16
	bootstrapPort         uint16
	inspectPort           uint16
	metricsBind           string
	healthBind            string
	webhookBind           string // empty: no webhook
	webhookCertDir        string // empty: the certificate is made here
	webhookConfiguration  string
	webhookServerName     string
	spireEnabled          bool
	spireSocket           string
	leaderElect           bool
	bind                  string
	portOffset            uint32
	releaseNamespace      string
	releaseName           string
	gatewayClass          string
	watchNamespaces       []string // empty: all
	seed                  bool
	accessLog             string
	systemCAFile          string
	streamFD, bootstrapFD int
	caLifetime, svidTTL   time.Duration
	trustDomain           string
	ackDeadline           time.Duration
	system                meshconfig.System
	otlp                  otlpflag.Flags
	debug                 bool
}

// The modes of the CA on a cluster.
const (
	caAuto     = "auto"
	caExternal = "external"
)

// environmentNames are the variables that set a flag which is not given, by flag.
var environmentNames = map[string]string{ //nolint:gosec // names of variables, none is a credential
	"discovery-ca-mode":        "COXSWAIN_DISCOVERY_CA_MODE",
	"discovery-ca-secret":      "COXSWAIN_DISCOVERY_CA_SECRET",
	"discovery-port":           "COXSWAIN_DISCOVERY_PORT",
	"discovery-bootstrap-port": "COXSWAIN_DISCOVERY_BOOTSTRAP_PORT",
	"discovery-ca-lifetime":    "COXSWAIN_DISCOVERY_CA_LIFETIME",
	"discovery-svid-ttl":       "COXSWAIN_DISCOVERY_SVID_TTL",
	"discovery-trust-domain":   "COXSWAIN_DISCOVERY_TRUST_DOMAIN",
}

func (f *flags) register(cmd *cobra.Command) {
	s := cmd.Flags()
	s.StringVar(&f.directory, "directory", "", "standalone: directory of manifests to serve; empty: configuration is a cluster's")
	s.StringVar(&f.stateDir, "state-dir", "", "standalone: the instance's state directory")
	s.StringVar(&f.kubeconfig, "kubeconfig", "", "on a cluster: how to reach its API; empty: as a pod does")
	s.StringVar(&f.proxySelector, "shared-proxy-selector", "app.kubernetes.io/component=shared-proxy", "on a cluster: labels of the shared proxies' pods")
	s.StringVar(&f.proxyTemplate, "proxy-template", "", "on a cluster: file of the shared proxies' pod template, from which those of dedicated Gateways are made; empty: Gateways cannot be dedicated")
	s.StringVar(&f.sharedMemory, "shared-proxy-memory", resource.NewQuantity(routing.DefaultSharedMemory, resource.BinarySI).String(), "how much of the memory of each shared Envoy the routes of one namespace may take, by estimate, as a quantity; 0: any")
	s.DurationVar(&f.proxyOverlap, "proxy-overlap", provision.DefaultOverlap, "on a cluster: for how long both addresses of a Gateway are published after it changed between shared and dedicated proxies; the old one is served for a fifth of that more")
	s.StringVar(&f.caMode, "discovery-ca-mode", caAuto, "on a cluster: "+caAuto+" makes the CA's Secret, "+caExternal+" waits for it")
	s.StringVar(&f.caSecret, "discovery-ca-secret", cakube.DefaultSecret, "on a cluster: Secret of the release namespace that holds the CA")
	s.StringVar(&f.discoveryBind, "discovery-bind", "", "on a cluster: IP address that the discovery listeners bind; empty: all")
	s.Uint16Var(&f.streamPort, "discovery-port", 50051, "on a cluster: port of the stream listener")
	s.Uint16Var(&f.bootstrapPort, "discovery-bootstrap-port", 50052, "on a cluster: port of the bootstrap listener")
	s.Uint16Var(&f.inspectPort, "inspect-port", 8083, "on a cluster: port of loopback that answers read-only questions")
	s.StringVar(&f.metricsBind, "metrics-bind-address", "", "on a cluster: host:port of /metrics; empty: none")
	s.StringVar(&f.healthBind, "health-probe-bind-address", "", "on a cluster: host:port of /healthz and /readyz; empty: none")
	s.StringVar(&f.webhookBind, "webhook-bind-address", "", "on a cluster: host:port of the admission webhook; empty: none")
	s.StringVar(&f.webhookCertDir, "webhook-certificate-dir", "", "on a cluster: directory with "+webhook.CertFile+" and "+webhook.KeyFile+", the webhook's certificate; followed when they change. Empty: it is made by the discovery CA, for --webhook-server-name")
	s.StringVar(&f.webhookConfiguration, "webhook-configuration", "", "on a cluster: the ValidatingWebhookConfiguration whose caBundle the leader keeps right, if it is annotated "+webhook.Annotation+": "+webhook.AnnotationValue)
	s.StringVar(&f.webhookServerName, "webhook-server-name", "", "on a cluster: DNS name by which API servers call the webhook, which a certificate must have that is not of --webhook-certificate-dir")
	s.BoolVar(&f.spireEnabled, "spire-enabled", false, "on a cluster: the webhook's certificate is the SVID that SPIRE gives this workload")
	s.StringVar(&f.spireSocket, "spire-workload-socket", "", "on a cluster: address of SPIRE's Workload API, unix:///path")
	s.BoolVar(&f.leaderElect, "leader-elect", true, "on a cluster: do what only one replica may do, as writing to the API, only while holding a Lease; false: this is the only replica")
	s.StringVar(&f.bind, "bind", "127.0.0.1", "IP address that listeners bind")
	s.Uint32Var(&f.portOffset, "port-offset", 0, "added to the port of each listener")
	s.StringVar(&f.releaseNamespace, "release-namespace", "aether-system", "namespace whose MeshConfig every other inherits")
	s.StringVar(&f.releaseName, "release-name", "aether", "on a cluster: name of the release, with which the names of ConfigMaps begin that are made for others: <name>-mesh-config, <name>-seeded")
	s.StringVar(&f.gatewayClass, "gateway-class", "coxswain", "on a cluster: name of the release's GatewayClass; with --watch-namespaces no other is seen")
	s.StringSliceVar(&f.watchNamespaces, "watch-namespaces", nil, "on a cluster: namespaces whose objects are read and written, beside the release's; empty: all")
	s.BoolVar(&f.seed, "seed-mesh-config", false, "on a cluster: make an empty MeshConfig default in the release namespace, once: ConfigMap <release-name>-seeded remembers it")
	s.StringVar(&f.accessLog, "access-log", "", "file of the access log, JSON lines; empty: none")
	s.StringVar(&f.systemCAFile, "system-ca-file", "/etc/ssl/certs/ca-certificates.crt", "PEM bundle, on the proxies' disks, of the authorities that a BackendTLSPolicy calls System; empty: such policies are refused")
	s.IntVar(&f.streamFD, "stream-fd", 0, "standalone: inherited file descriptor of the stream listener")
	s.IntVar(&f.bootstrapFD, "bootstrap-fd", 0, "standalone: inherited file descriptor of the bootstrap listener")
	s.DurationVar(&f.caLifetime, "discovery-ca-lifetime", 87600*time.Hour, "lifetime of a CA that is created")
	s.DurationVar(&f.svidTTL, "discovery-svid-ttl", 24*time.Hour, "lifetime of SVIDs and server certificates; renewed at about half")
	s.StringVar(&f.trustDomain, "discovery-trust-domain", "cluster.local", "trust domain; must match the proxies'")
	s.DurationVar(&f.ackDeadline, "ack-deadline", 30*time.Second, "after which a proxy that has not answered is a laggard")
	f.otlp.Register(s, otlpflag.Help{
		Enabled: "What a MeshConfig inherits of logs and traces needs it", Logs: "What a MeshConfig inherits: access logs",
		TraceExport: "What a MeshConfig inherits: traces of requests", SampleRate: "What a MeshConfig inherits: fraction of requests that are traced",
	})
	s.StringVar(&f.otlp.Authorities, otlpflag.ControllerAuthorities, "", "ConfigMap of the release namespace whose ca.crt has the authorities of the collector's certificate; empty: the system's")
	s.BoolVar(&f.debug, "debug", false, "log what is of use only to a developer")
	cmd.MarkFlagsRequiredTogether("directory", "state-dir", "stream-fd", "bootstrap-fd")
	for _, name := range []string{
		"kubeconfig", "shared-proxy-selector", "proxy-template", "proxy-overlap", "discovery-ca-mode", "discovery-ca-secret", "discovery-bind",
		"discovery-port", "discovery-bootstrap-port", "inspect-port", "metrics-bind-address", "health-probe-bind-address", "leader-elect",
		"release-name", "gateway-class", "watch-namespaces", "seed-mesh-config",
		"webhook-bind-address", "webhook-certificate-dir", "webhook-configuration", "webhook-server-name", "spire-enabled", "spire-workload-socket",
	} {
		cmd.MarkFlagsMutuallyExclusive("directory", name)
	}
}

// collector is what proxies export to.
func (f *flags) collector() routing.Collector {
	host, port := f.otlp.Target()
	if host == "" {
		return routing.Collector{}
	}
	c := routing.Collector{Host: host, Port: port, TLS: f.otlp.TLS, ServerName: f.otlp.ServerName, Authorities: f.otlp.Authorities}
	if c.TLS {
		c.ServerName = cmp.Or(c.ServerName, host)
		c.TrustFile = f.systemCAFile
	}
	return c
}

// watched is the namespaces whose objects are read, sorted; nil: all.
func (f *flags) watched() []string {
	if len(f.watchNamespaces) == 0 {
		return nil
	}
	out := append(slices.Clone(f.watchNamespaces), f.releaseNamespace)
	slices.Sort(out)
	return slices.Compact(out)
}

// environment sets the flags that have a variable and were not given.
func (f *flags) environment(lookup func(string) (string, bool), s *pflag.FlagSet) error {
	for flag, name := range environmentNames {
		value, ok := lookup(name)
		if !ok || s.Changed(flag) {
			continue
		}
		if err := s.Set(flag, value); err != nil {
			return fmt.Errorf("%s=%q: %w", name, value, err)
		}
	}
	return nil
}

// check refuses values that parse but mean nothing.
func (f *flags) check() error {
	var errs []error
	refuse := func(bad bool, text string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(text, args...))
		}
	}
	refuse(f.caMode != caAuto && f.caMode != caExternal, "--discovery-ca-mode %q is neither %s nor %s", f.caMode, caAuto, caExternal)
	refuse(f.discoveryBind != "" && net.ParseIP(f.discoveryBind) == nil, "--discovery-bind %q is not an IP address", f.discoveryBind)
	for name, address := range map[string]string{"metrics-bind-address": f.metricsBind, "health-probe-bind-address": f.healthBind, "webhook-bind-address": f.webhookBind} {
		if address != "" {
			err := port.Check(address)
			refuse(err != nil, "--%s: %w", name, err)
		}
	}
	refuse(len(validation.NameIsDNSSubdomain(f.releaseName, false)) > 0, "--release-name %q is not a name", f.releaseName)
	refuse(len(validation.NameIsDNSSubdomain(f.gatewayClass, false)) > 0, "--gateway-class %q is not a name", f.gatewayClass)
	for _, n := range f.watchNamespaces {
		refuse(len(validation.ValidateNamespaceName(n, false)) > 0, "--watch-namespaces: %q is not the name of a namespace", n)
	}
	refuse(len(f.watched()) > sourcekube.MaxNamespaces, "--watch-namespaces: %d are more than %d, the release's with them", len(f.watched()), sourcekube.MaxNamespaces)
	refuse(f.proxyOverlap <= 0, "--proxy-overlap %s is not positive", f.proxyOverlap)
	memory, err := resource.ParseQuantity(f.sharedMemory)
	refuse(err != nil || memory.Sign() < 0, "--shared-proxy-memory %q is no quantity of memory", f.sharedMemory)
	f.sharedBytes = memory.Value()
	domain, err := spiffeid.ParseTrustDomain(f.trustDomain)
	refuse(err != nil, "--discovery-trust-domain: %w", err)
	if err == nil {
		_, err = spiffeid.Controller(domain, f.releaseNamespace)
		refuse(err != nil, "--release-namespace: %w", err)
	}
	_, err = labels.ConvertSelectorToLabelsMap(f.proxySelector)
	refuse(err != nil, "--shared-proxy-selector: %w", err)
	refuse(net.ParseIP(f.bind) == nil, "--bind %q is not an IP address", f.bind)
	refuse(f.portOffset > 65534, "--port-offset %d is not in 0..65534", f.portOffset)
	refuse(f.caLifetime <= 0, "--discovery-ca-lifetime %s is not positive", f.caLifetime)
	refuse(f.svidTTL < time.Minute, "--discovery-svid-ttl %s is shorter than a minute", f.svidTTL)
	refuse(f.ackDeadline <= 0, "--ack-deadline %s is not positive", f.ackDeadline)
	refuse(f.webhookBind != "" && f.webhookCertDir == "" && (f.webhookServerName == "" || f.webhookConfiguration == ""),
		"--webhook-bind-address needs --webhook-certificate-dir, or --webhook-server-name and --webhook-configuration")
	refuse(f.spireEnabled != (f.spireSocket != ""), "--spire-enabled and --spire-workload-socket belong together")
	refuse(f.spireEnabled && f.webhookCertDir != "", "--webhook-certificate-dir and --spire-enabled: the certificate can't be from both")
	if err := f.otlp.Check(); err != nil {
		errs = append(errs, err)
	}
	f.system = meshconfig.System{
		OTelEnabled: f.otlp.Enabled, OTelEndpoint: f.otlp.Endpoint, OTelLogs: f.otlp.Logs,
		TraceSampleRate: f.otlp.SampleRate, TraceExport: f.otlp.TraceExport,
	}
	return errors.Join(errs...)
}
