package hcm

// The runtime keys of a table end in the table's name, which may have dots and slashes:
// Envoy takes a key as it is. What a key is missing for is off.
const (
	AccessLogEnabled = "aether.access_log.enabled."         // percent, 0 or 100
	AccessLogSuccess = "aether.access_log.success_percent." // percent, 0 to 100
	TraceSample      = "aether.trace.sample."               // the share of requests that are traced
	PodStats         = "aether.pod_stats."                  // percent, 0 or 100
)
