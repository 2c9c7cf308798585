package meshconfig

import (
	configv1 "aether.io/aether/api/config/v1"
)

// Idle is a field that a spec sets and that changes nothing in the spec's namespace, as
// other settings are now.
type Idle struct {
	Path   string // dotted, from the spec: proxy.traceSampleRate
	Reason string // why, lower case, without the path
}

func (i Idle) String() string { return "spec." + i.Path + " has no effect: " + i.Reason }

// NoEffect finds what spec sets in vain, in the order of the paths; e is what is in effect
// in its namespace, spec among it. What the release namespace's object sets in vain for
// itself may still be of use to a namespace that inherits it and sets the rest.
//
// It says nothing of a field that repeats what is inherited: that pins the value. Nor of a
// rate of 0, which has nothing traced; tracing that is on is in vain then.
func NoEffect(sys System, spec *configv1.MeshConfigSpec, e Effective) []Idle {
	p := spec.GetProxy()
	if p == nil {
		return nil
	}
	var out []Idle
	if p.AccessLogSuccessSampleRate != nil && !e.AccessLogs.Value {
		out = append(out, Idle{"proxy.accessLogSuccessSampleRate", "access logs are off, by " + by(e.AccessLogs.From)})
	}
	const nowhere = "there is no collector to send traces to (otel.endpoint)"
	if p.TraceSampleRate != nil {
		switch {
		case !e.Tracing.Value:
			out = append(out, Idle{"proxy.traceSampleRate", "tracing is off, by " + by(e.Tracing.From)})
		case sys.OTelEndpoint == "":
			out = append(out, Idle{"proxy.traceSampleRate", nowhere})
		}
	}
	switch {
	case !p.GetTracingEnabled():
	case sys.OTelEndpoint == "":
		out = append(out, Idle{"proxy.tracingEnabled", nowhere})
	case e.TraceSampleRate.Value == 0:
		out = append(out, Idle{"proxy.tracingEnabled", "the trace rate is 0, by " + by(e.TraceSampleRate.From)})
	}
	return out
}

// by names an origin in a sentence.
func by(from string) string {
	switch from {
	case FromSystem:
		return "system config"
	case FromDefault:
		return "default"
	}
	return "MeshConfig " + from
}
