// Package fleet describes what proxies are observed to run. It is the vocabulary in
// which the discovery side reports and status, console and command line read; it
// observes nothing itself.
package fleet

import (
	"time"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/scope"
)

// Peer is who subscribes, as proved by its SVID and said in its Subscribe.
type Peer struct {
	ID           string    `json:"id"` // pod name
	PodUID       string    `json:"podUid,omitempty"`
	Node         string    `json:"node,omitempty"`
	Identity     string    `json:"identity"`     // SPIFFE ID
	Addr         string    `json:"addr"`         // remote address
	Serial       string    `json:"serial"`       // of its SVID, lower-case hexadecimal
	NotAfter     time.Time `json:"notAfter"`     // of its SVID
	EnvoyVersion string    `json:"envoyVersion"` // empty until an Envoy has connected
	BuildVersion string    `json:"buildVersion"` // of the proxy
}

// Proxy is one proxy as observed.
type Proxy struct {
	Peer
	Scope       scope.Scope        `json:"-"`
	ScopeName   string             `json:"scope"` // Scope as text
	Connected   bool               `json:"connected"`
	Since       time.Time          `json:"since"`             // of the last change of Connected
	Version     string             `json:"version,omitempty"` // acknowledged; empty before the first Ack
	Current     bool               `json:"current"`           // Version is the scope's current one and nothing is pending
	Laggard     string             `json:"laggard,omitempty"` // reason why it counts as a laggard, empty if it does not
	LaggardFrom time.Time          `json:"laggardFrom,omitzero"`
	Pending     []resource.Name    `json:"pending,omitempty"`
	Refused     []resource.Refusal `json:"refused,omitempty"`
	BoundPorts  []uint32           `json:"boundPorts"`
	Status      Status             `json:"status"`
}

// Status is what a proxy last reported of itself.
type Status struct {
	EnvoyVersion string    `json:"envoyVersion"` // empty until an Envoy has connected
	SVIDSerial   string    `json:"svidSerial"`
	IssuerKeyID  string    `json:"issuerKeyId"`
	SVIDNotAfter time.Time `json:"svidNotAfter"`
	MountedRoots []string  `json:"mountedRoots"` // fingerprints
	PushedRoots  []string  `json:"pushedRoots"`  // fingerprints
	Checks       []Check   `json:"checks,omitempty"`
}

// Check is one of a proxy's own health checks.
type Check struct {
	Name   string    `json:"name"`
	State  string    `json:"state"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`
}

// The states of a Check.
const (
	CheckOK     = "ok"
	CheckFailed = "failed"
)

// CheckTelemetry is the Check of whether what a proxy's Envoy exports arrives at the
// collector. It is there only once something of that is known.
const CheckTelemetry = "telemetry"

// The reasons for which a proxy is a laggard.
const (
	LagNotConnected = "Disconnected"
	LagNoAck        = "NotAcknowledged" // past the Ack deadline
	LagPending      = "Pending"         // accepted, still warming past the Ack deadline
	LagRejected     = "Rejected"        // refused by its Envoy; of a Member only
)

// Verdict is whether a set of resources is live where it should be.
type Verdict struct {
	Total    int       // proxies of the scope that count: connected and no laggards
	Live     int       // of those, how many run all of the resources
	Refusing int       // of those, how many refuse one of the resources
	Refused  []Refused // who refused what, sorted, at most 10
	Laggards []Laggard // who does not count, sorted, at most 10
	Unbound  []Laggard // who runs the resources but has not bound the port, at most 10
	At       time.Time // when it was observed
}

// IsLive reports whether at least one proxy counts and every one that counts runs
// all of the resources with the port bound.
func (v Verdict) IsLive() bool { return v.Total > 0 && v.Live == v.Total }

// Refused is one proxy's refusal.
type Refused struct {
	Proxy string
	resource.Refusal
}

// Reported is what all proxies together have told, boiled down to what is done about it.
type Reported struct {
	Refused  []Objection // each resource once however many proxies refuse it, sorted by scope and name
	Bindings uint64      // grows whenever a proxy has bound other ports than it had
}

// Objection is what a proxy of a scope refuses of what the scope has now.
type Objection struct {
	Scope scope.Scope
	resource.Refusal
}

// Laggard is a proxy that is behind, and since when.
type Laggard struct {
	Proxy  string
	Reason string
	Since  time.Time
}
