package inspect

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"aether.io/aether/internal/resource"
)

// The pages that the processes serve.
const (
	ReadyPath     = "/readyz"       // proxy: its state
	ResourcesPath = "/v1/resources" // both: []Resource; ?scope= at the controller
	ProxiesPath   = "/v1/proxies"   // controller: []fleet.Proxy
	IdentityPath  = "/v1/identity"  // controller: Identity
	StatusPath    = "/v1/status"    // controller: Statuses
	ProblemsPath  = "/v1/problems"  // controller: []source.Problem
	ConfigPath    = "/v1/config"    // controller: Config
	MetricsPath   = "/metrics"      // both: Prometheus text
)

// Statuses is the status of every object that has one, sorted by kind, namespace, name.
type Statuses struct {
	Settled   bool             `json:"settled"` // false: some is still being worked out
	Documents []StatusDocument `json:"documents"`
	Idle      []string         `json:"idle,omitempty"` // objects that would have a status if they led to a GatewayClass of ours, and have none, as Kind/namespace/name
}

// StatusDocument is one object's status.
type StatusDocument struct {
	Kind       string          `json:"kind"`
	Namespace  string          `json:"namespace,omitempty"`
	Name       string          `json:"name"`
	Generation int64           `json:"generation"`
	Status     json.RawMessage `json:"status"`
}

// Resource is one resource without what is in it.
type Resource struct {
	Scope  string   `json:"scope,omitempty"`
	Type   string   `json:"type"` // the message's short name
	Name   string   `json:"name"`
	Hash   string   `json:"hash"` // SHA-256, lower-case hexadecimal
	Bytes  int      `json:"bytes"`
	Origin []string `json:"origin,omitempty"`
}

// Resources describes resources of a scope.
func Resources(scope string, list []*resource.Resource) []Resource {
	out := make([]Resource, 0, len(list))
	for _, r := range list {
		d := Resource{Scope: scope, Type: r.TypeURL[strings.LastIndexByte(r.TypeURL, '.')+1:], Name: r.Name.Name, Hash: r.Hash.String(), Bytes: len(r.Payload)}
		for _, o := range r.Origin {
			d.Origin = append(d.Origin, o.String())
		}
		out = append(out, d)
	}
	return out
}

// Metrics serves what was registered.
func Metrics(r prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{})
}

// Identity is who signs and for whom it did.
type Identity struct {
	TrustDomain string     `json:"trustDomain"`
	CA          CA         `json:"ca"`
	Roots       []string   `json:"roots"` // SHA-256 fingerprints
	Issued      []Issuance `json:"issued"`
}

// CA is the signing certificate.
type CA struct {
	KeyID    string    `json:"keyId"`
	Subject  string    `json:"subject"`
	NotAfter time.Time `json:"notAfter"`
}

// Issuance is one answered request for an SVID, granted or refused.
type Issuance struct {
	At       time.Time `json:"at"`
	Identity string    `json:"identity"`
	Pod      string    `json:"pod,omitempty"`
	Node     string    `json:"node,omitempty"`
	Serial   string    `json:"serial,omitempty"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	Result   string    `json:"result"`
	Reason   string    `json:"reason,omitempty"`
}
