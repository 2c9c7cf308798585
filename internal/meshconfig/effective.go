package meshconfig

import (
	configv1 "aether.io/aether/api/config/v1"
)

// Where a value comes from when no MeshConfig sets it.
const (
	FromSystem  = "system"  // system config, which is flags
	FromDefault = "default" // built in
)

// DefaultSuccessSampleRate is the percent of successful requests that are logged by default.
const DefaultSuccessSampleRate uint32 = 100

// System is the part of system config that a MeshConfig may override.
type System struct {
	OTelEnabled     bool    // otel.enabled
	OTelLogs        bool    // otel.logs
	OTelEndpoint    string  // otel.endpoint, host:port, or empty: no export
	TraceSampleRate float64 // otel.traceSampleRate, 0..1
	TraceExport     bool    // otel.traceExport
}

// Value is a value in effect. From is FromSystem, FromDefault, or namespace/name of the
// MeshConfig that sets it.
type Value[T any] struct {
	Value T
	From  string
}

// Effective is every field of a MeshConfig with its value in effect for one namespace.
type Effective struct {
	AccessLogs                 Value[bool]
	AccessLogSuccessSampleRate Value[uint32]  // percent, 0..100
	Tracing                    Value[bool]    // whether spans are exported
	TraceSampleRate            Value[float64] // fraction, 0..1
	EmitStatsPod               Value[bool]
}

// Resolve finds what is in effect, field by field: the namespace's MeshConfig, else the
// release namespace's, else system config, else the default. Either object may be nil,
// and both may be the same. Objects are taken to be valid.
func Resolve(sys System, release, namespace *configv1.MeshConfig) Effective {
	e := Effective{
		AccessLogs:                 Value[bool]{sys.OTelEnabled && sys.OTelLogs, FromSystem},
		AccessLogSuccessSampleRate: Value[uint32]{DefaultSuccessSampleRate, FromDefault},
		Tracing:                    Value[bool]{sys.OTelEnabled && sys.TraceExport, FromSystem},
		TraceSampleRate:            Value[float64]{sys.TraceSampleRate, FromSystem},
		EmitStatsPod:               Value[bool]{false, FromDefault},
	}
	for _, c := range []*configv1.MeshConfig{release, namespace} {
		if c == nil {
			continue
		}
		from := c.Namespace + "/" + c.Name
		p := c.Spec.GetProxy()
		if p == nil {
			continue
		}
		set(&e.AccessLogs, p.AccessLogsEnabled, from)
		set(&e.AccessLogSuccessSampleRate, p.AccessLogSuccessSampleRate, from)
		set(&e.Tracing, p.TracingEnabled, from)
		set(&e.TraceSampleRate, p.TraceSampleRate, from)
		set(&e.EmitStatsPod, p.EmitStatsPod, from)
	}
	return e
}

func set[T any](v *Value[T], to *T, from string) {
	if to != nil {
		*v = Value[T]{Value: *to, From: from}
	}
}

// Status is e as the status of a MeshConfig shows it.
func (e Effective) Status() *configv1.MeshConfigEffective {
	return &configv1.MeshConfigEffective{Proxy: configv1.MeshConfigEffectiveProxy{
		AccessLogsEnabled:          configv1.EffectiveBool(e.AccessLogs),
		AccessLogSuccessSampleRate: configv1.EffectiveUint32(e.AccessLogSuccessSampleRate),
		TracingEnabled:             configv1.EffectiveBool(e.Tracing),
		TraceSampleRate:            configv1.EffectiveDouble(e.TraceSampleRate),
		EmitStatsPod:               configv1.EffectiveBool(e.EmitStatsPod),
	}}
}
