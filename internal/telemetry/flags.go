package telemetry

import "aether.io/aether/internal/otlpflag"

// Of is the part of a Config that flags say. They are checked. What is exported at all is for
// --otel-enabled to say; Metrics are the caller's.
func Of(f otlpflag.Flags) Config {
	if !f.Enabled || f.Endpoint == "" {
		return Config{}
	}
	return Config{
		Endpoint: f.Endpoint, TLS: f.TLS, ServerName: f.ServerName, Trust: f.Authorities != "",
		Logs: f.Logs, Traces: f.TraceExport, SampleRate: f.SampleRate,
	}
}
