// Package envoy turns the routing model into Envoy resources; its folder bootstrap turns
// deploy-time flags into an Envoy bootstrap. It decides nothing: what is to be served is
// in the model, how stock Envoy is made to serve it is here. Every model is checked
// before it is encoded. Equal models give equal bytes.
package envoy

import (
	"time"

	"aether.io/aether/internal/envoy/route"
	"aether.io/aether/internal/object"
)

// Listener is one bound port of one Gateway.
type Listener struct {
	Name    string // <ns>/<gateway>/<port>
	Address string // IP to bind
	Port    uint32 // port to bind, offset already added
	Chains  []Chain
	Proxied Proxied
	Origin  []object.Key
}

// Proxied is what is made of PROXY protocol headers (versions 1 and 2) in front of
// connections. The zero Proxied takes them for an error of the client.
type Proxied struct {
	Mode ProxyMode
	// Trusted is the CIDRs of the peers whose header is believed; empty: every peer's.
	// Others are refused if headers are required, and else served under their own
	// address, whatever their header says.
	Trusted []string
}

// ProxyMode says whether connections begin with a PROXY header.
type ProxyMode uint8

// The modes: never, if there is one, always.
const (
	ProxyOff ProxyMode = iota
	ProxyAccept
	ProxyRequire
)

// Chain is one filter chain: one route table behind one way of being reached.
type Chain struct {
	Name      string   // the route table's name: <ns>/<gateway>/<port> for HTTP, <ns>/<gateway>/<section> for HTTPS
	SNI       []string // server names, "*.x" for wildcards; empty: every name. Only with Secrets
	Secrets   []string // SDS names of the certificates; empty: plain HTTP
	PerHost   bool     // one scope a host with the miss path, else all hosts in one scope
	AccessLog string   // path of the JSON lines access log; empty: none
	Collector bool     // access logs and traces go to the Collector that there is

	TrustedHops uint32 // proxies in front whose X-Forwarded-* headers are believed
	Port        uint32 // the port as clients know it, for X-Forwarded-Port

	MinTLS13 bool // refuse TLS 1.2, the oldest version that is served otherwise
	Clients  ClientCertificates
}

// ClientCertificates is what a chain with Secrets asks of its clients. The zero value
// asks for no certificate.
type ClientCertificates struct {
	Trust    string // SDS name of the Trust that they are verified by
	Optional bool   // also serve clients without a certificate, or with one that does not verify
}

// Scope is the routes of one (table, host), or of the whole table if Host is "*":
// then it holds every virtual host that has no scope of its own.
type Scope struct {
	Table        string
	Host         string // exact host in lower case, or "*"
	PerHost      bool   // the table is in scope-per-host mode
	VirtualHosts []VirtualHost
	Elsewhere    []string // hosts of other tables of the port, which get 421; only where Host is "*"
	Origin       []object.Key
}

// VirtualHost is the routes of one host in the order in which they are tried.
// A request that none matches gets 404.
type VirtualHost struct {
	Port   uint32 // the listener's, as the Gateway says it: redirects go by it; 0: the scheme's
	Secure bool   // the listener's protocol is HTTPS: redirects go by it

	Host   string // exact, "*.x" or "*"; lower case
	Routes []Route
}

// Route is one match of one rule; what is in it is documented in its own package.
type Route = route.Route

// PathMatch says which paths match.
type PathMatch = route.PathMatch

// PathKind is how a path is compared.
type PathKind = route.PathKind

// HeaderMatch is one header condition.
type HeaderMatch = route.HeaderMatch

// QueryMatch is one query parameter condition.
type QueryMatch = route.QueryMatch

// WeightedBackend is one share of a route's requests.
type WeightedBackend = route.Backend

// The ways to compare a path.
const (
	PathPrefix = route.PathPrefix
	PathExact  = route.PathExact
	PathRegex  = route.PathRegex
)

// Cluster is one port of one Service.
type Cluster struct {
	Name           string // <ns>/<service>/<port>, with @<ns>/<gateway> if that Gateway's certificate is shown
	ConnectTimeout time.Duration
	Protocol       Protocol
	TLS            *UpstreamTLS // nil: plaintext
	Origin         []object.Key
}

// Protocol is what the backend speaks.
type Protocol uint8

// The protocols of backends.
const (
	HTTP1 Protocol = iota
	HTTP2
)

// UpstreamTLS is how a cluster's endpoints are spoken to by TLS: whom to ask for, whom to
// believe, and what to show. There is no TLS that believes anyone.
type UpstreamTLS struct {
	ServerName  string        // asked for (SNI): exact, lower case
	Names       []SubjectName // the certificate must bear one of them; never empty
	Trust       string        // SDS name of a Trust; empty: TrustFile
	TrustFile   string        // path of a PEM bundle beside the proxy; empty: Trust
	Certificate string        // SDS name of the Secret that is shown; empty: none
}

// SubjectName is a subject alternative name that a backend's certificate may bear.
type SubjectName struct {
	URI   bool   // Value is a whole URI, else a host in lower case
	Value string // a host may be "*.x": every name below x
}

// Trust is the certificates of authorities, checked before it gets here.
type Trust struct {
	Name        string // <ns>/<policy>/backend-ca
	Authorities []byte // PEM
	Origin      []object.Key
}

// Endpoints is the addresses of one cluster, sorted, without duplicates.
type Endpoints struct {
	Cluster   string
	Addresses []Address
	Origin    []object.Key
}

// Address is where one endpoint listens, and the pod that does, if it is one.
type Address struct {
	IP             string
	Port           uint32
	Pod, Namespace string // of the pod; empty: not known
}

// Collector is the OpenTelemetry Collector that proxies export to by OTLP over gRPC. It is
// no process of ours, so plaintext to it is the operator's choice.
type Collector struct {
	Host string // a name or an IP address
	Port uint32
	TLS  *UpstreamTLS // nil: plaintext
}

// CollectorTLS is TLS to a collector that has a certificate for that name. By trustFile it
// is verified, or if that is empty by the Trust called CollectorName.
func CollectorTLS(serverName, trustFile string) *UpstreamTLS {
	t := &UpstreamTLS{ServerName: serverName, Names: []SubjectName{{Value: serverName}}, TrustFile: trustFile}
	if trustFile == "" {
		t.Trust = CollectorName
	}
	return t
}

// Secret is one certificate with its key, checked before it gets here.
type Secret struct {
	Name   string // <ns>/<name>
	Chain  []byte // PEM
	Key    []byte // PEM
	Origin []object.Key
}

// Runtime is the runtime layer of a scope: what changes in a running Envoy without
// an update of any other resource.
type Runtime struct {
	AccessLogs  map[string]AccessLog // by route table
	Traces      map[string]float64   // by route table: the share of requests that are traced, 0 to 1
	PodStats    map[string]bool      // by route table: whether requests are counted by pod
	Connections map[string]uint32    // by listener: how many it holds at a time; absent: no limit
	Origin      []object.Key
}

// AccessLog is which requests of a route table are logged.
type AccessLog struct {
	Enabled       bool
	SuccessSample uint32 // percent of successful requests; failures are always logged
}
