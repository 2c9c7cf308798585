package bootstrap

import (
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"aether.io/aether/internal/envoy/hcm"
	"aether.io/aether/internal/envoy/wire"
)

// keptPrefixes are the metrics of the process that are kept whole.
func keptPrefixes() []string {
	return []string{
		"cluster_manager.", "control_plane.", "listener_manager.", "overload.", "runtime.", "server.",
		"cluster." + wire.XDSCluster + ".",
		// What becomes of what is exported, and what is counted by pod.
		"cluster." + wire.CollectorCluster + ".", "cluster." + wire.MetricsCluster + ".", "access_logs.", "tracing.opentelemetry.", hcm.PodStatsPrefix + ".",
	}
}

// keptSuffixes are the metrics kept of each listener, route table and cluster: traffic,
// its failures, its time, and what tells that something is warming or was refused. Envoy
// has several hundred for each, which at thousands of clusters is most of its memory.
func keptSuffixes() []string {
	return []string{
		// listeners and route tables
		".downstream_cx_active", ".downstream_cx_total", ".downstream_cx_overflow",
		".downstream_rq_active", ".downstream_rq_total", ".downstream_rq_time", ".downstream_rq_too_large",
		".downstream_rq_1xx", ".downstream_rq_2xx", ".downstream_rq_3xx", ".downstream_rq_4xx", ".downstream_rq_5xx",
		".no_filter_chain_match", ".ssl.connection_error", ".ssl.handshake", ".lua.errors",
		// clusters
		".membership_healthy", ".membership_total", ".warming_state",
		".upstream_cx_active", ".upstream_cx_connect_fail", ".upstream_cx_total",
		".upstream_rq_active", ".upstream_rq_total", ".upstream_rq_time", ".upstream_rq_timeout",
		".upstream_rq_pending_overflow", ".upstream_rq_retry",
		".upstream_rq_2xx", ".upstream_rq_3xx", ".upstream_rq_4xx", ".upstream_rq_5xx",
		// every subscription
		".update_success", ".update_rejected", ".init_fetch_timeout", ".config_reload",
	}
}

func statsConfig() *metricsv3.StatsConfig {
	var keep []*matcherv3.StringMatcher
	for _, p := range keptPrefixes() {
		keep = append(keep, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: p}})
	}
	for _, s := range keptSuffixes() {
		keep = append(keep, &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Suffix{Suffix: s}})
	}
	return &metricsv3.StatsConfig{StatsMatcher: &metricsv3.StatsMatcher{
		StatsMatcher: &metricsv3.StatsMatcher_InclusionList{InclusionList: &matcherv3.ListStringMatcher{Patterns: keep}},
	}}
}
