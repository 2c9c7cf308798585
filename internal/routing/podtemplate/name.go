package podtemplate

import (
	"slices"
	"strings"
)

// systemPriority begins the names of priority classes that Kubernetes keeps for itself.
const systemPriority = "system-"

// Why something is not allowed.
const (
	whyOurs     = "it is Aether's"
	whyCluster  = "its domain is Kubernetes', which acts upon it"
	whyInjected = "it has others add containers, volumes, networks, devices or identities to a pod"
	whyHash     = "it tells the pods of one Deployment from another's"
	whyVariable = "it changes which code runs, or whom it talks to or trusts"
)

// safe is what of Kubernetes' own domains only says something of the pod to those who
// place or evict it.
var safe = []string{
	"cluster-autoscaler.kubernetes.io/safe-to-evict",
	"controller.kubernetes.io/pod-deletion-cost",
	"descheduler.alpha.kubernetes.io/evict",
}

// injectors are domains by whose labels and annotations admission webhooks and runtimes are
// known to add something to a pod. It cannot be complete: what an admission webhook of a
// cluster does to a pod is that cluster's to decide.
var injectors = []string{
	"cncf.io", "cilium.io", "projectcalico.org", "ovn.org", "noderesource.dev", "nri.io", "nvidia.com", "intel.com",
	"istio.io", "linkerd.io", "kuma.io", "dapr.io", "openservicemesh.io", "opentelemetry.io", "datadoghq.com", "dynatrace.com",
	"hashicorp.com", "azure.workload.identity", "amazonaws.com", "google.com", "gke.io", "bank-vaults.io", "akeyless.io",
}

// Label is why a label may not be on a pod; empty: it may.
func Label(name string) string { return reserved(name) }

// Annotation is why an annotation may not be on a pod; empty: it may.
func Annotation(name string) string { return reserved(name) }

func reserved(name string) string {
	prefix, _, has := strings.Cut(name, "/")
	prefix = strings.ToLower(prefix)
	switch {
	case name == "pod-template-hash" || name == "controller-revision-hash":
		return whyHash
	case slices.Contains(safe, name):
		return ""
	case strings.HasPrefix(name, "io.kubernetes.") || strings.HasPrefix(name, "io.containerd.") || strings.HasPrefix(name, "io.katacontainers."): // runtimes' have no domain
		return whyInjected
	case !has:
		return ""
	case within(prefix, "aether.io"):
		return whyOurs
	case within(prefix, "kubernetes.io") || within(prefix, "k8s.io"):
		return whyCluster
	}
	if slices.ContainsFunc(injectors, func(domain string) bool { return within(prefix, domain) }) {
		return whyInjected
	}
	return ""
}

// within reports whether a name is a domain or below it.
func within(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

// Names of environment variables that are not the user's: our programs' and Envoy's own, what
// Kubernetes sets, and what loaders, allocators, the Go runtime, its resolver, gRPC and
// TLS libraries read.
var (
	ourVariables      = []string{"AETHER_", "COXSWAIN_", "ENVOY_", "KUBERNETES_", "NODE_", "OTEL_", "POD_"}
	reservedVariables = []string{"LD_", "GLIBC_", "MALLOC_", "TCMALLOC_", "GRPC_", "SSL_", "OPENSSL_", "GODEBUG", "GOTRACEBACK", "GOCOVERDIR", "HEAPPROFILE", "CPUPROFILE", "SSLKEYLOGFILE", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "RES_OPTIONS", "LOCALDOMAIN", "HOSTALIASES", "RESOLV_HOST_CONF"}
	exactVariables    = []string{"PATH", "HOME", "SHELL", "IFS", "TMPDIR", "ENV", "BASH_ENV", "HOSTNAME"}
)

// Variable is why an environment variable may not be set; empty: it may. Case does not
// matter, as some of them are read in both.
func Variable(name string) string {
	name = strings.ToUpper(name)
	begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
	switch {
	case slices.ContainsFunc(ourVariables, begins):
		return whyOurs
	case slices.ContainsFunc(reservedVariables, begins), slices.Contains(exactVariables, name):
		return whyVariable
	}
	return ""
}
