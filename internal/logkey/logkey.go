// Package logkey holds the attribute keys of structured logs, so that one thing has
// one key everywhere.
package logkey

// The keys, in alphabetical order.
const (
	Addr              = "addr"
	Code              = "code"
	Component         = "component"
	Count             = "count"
	Duration          = "duration"
	Endpoint          = "endpoint"
	Error             = "error"
	File              = "file"
	Generation        = "generation"
	Identity          = "identity"
	KeyID             = "key_id"
	Namespace         = "namespace"
	Node              = "node"
	NodeID            = "node_id"
	NotAfter          = "not_after"
	Object            = "object"
	Path              = "path"
	PID               = "pid"
	Pod               = "pod"
	PodUID            = "pod_uid"
	Process           = "process"
	Reason            = "reason"
	Removed           = "removed"
	Resource          = "resource"
	Scope             = "scope"
	Serial            = "serial"
	ServerWireVersion = "server_wire_version"
	State             = "state"
	Type              = "type"
	Version           = "version"
	Wait              = "wait"
	WireVersion       = "wire_version"
)
