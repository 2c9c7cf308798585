package meshconfig

// Named is one field with its value in effect, as a person reads it.
type Named struct {
	Path  string `json:"field"` // dotted, from the spec: proxy.traceSampleRate
	Value any    `json:"value"` // bool, uint32 or float64
	From  string `json:"from"`  // as in Value
}

// Values is every field, in the order in which a MeshConfig's status has them.
func (e Effective) Values() []Named {
	return []Named{
		{"proxy.accessLogsEnabled", e.AccessLogs.Value, e.AccessLogs.From},
		{"proxy.accessLogSuccessSampleRate", e.AccessLogSuccessSampleRate.Value, e.AccessLogSuccessSampleRate.From},
		{"proxy.tracingEnabled", e.Tracing.Value, e.Tracing.From},
		{"proxy.traceSampleRate", e.TraceSampleRate.Value, e.TraceSampleRate.From},
		{"proxy.emitStatsPod", e.EmitStatsPod.Value, e.EmitStatsPod.From},
	}
}

// SystemValue names the system config that a field inherits in the end, as the chart calls it;
// empty: there is none, it has a default.
func SystemValue(path string) string {
	switch path {
	case "proxy.accessLogsEnabled":
		return "otel.enabled and otel.logs"
	case "proxy.tracingEnabled":
		return "otel.enabled and otel.traceExport"
	case "proxy.traceSampleRate":
		return "otel.traceSampleRate"
	}
	return ""
}
