package hcm

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	statsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/stats/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

// PodStatsPrefix begins the names of metrics by pod.
const PodStatsPrefix = "aether_pod"

// The namespace of an endpoint's metadata, and its keys.
const (
	EndpointMetadata     = "aether"
	EndpointPod          = "pod"
	EndpointPodNamespace = "namespace"
)

// maxPodSeries bounds the series by pod of a table; those above it are not counted. One takes some
// ten kilobytes of an Envoy that has tables of others too.
const maxPodSeries = 2000

// podStats counts requests by the pods between which they go. Of series that nothing was
// added to for a while Envoy lets go, so that pods that are gone leave none.
func (c Config) podStats() (*accesslogv3.AccessLog, error) {
	tags := []*statsv3.Config_Tag{
		{Name: "source_pod", ValueFormat: "%CEL(xds.node.id)%"},
		{Name: "destination_pod", ValueFormat: "%UPSTREAM_METADATA(" + EndpointMetadata + ":" + EndpointPod + ")%"},
		{Name: "destination_namespace", ValueFormat: "%UPSTREAM_METADATA(" + EndpointMetadata + ":" + EndpointPodNamespace + ")%"},
		{Name: "cluster", ValueFormat: "%UPSTREAM_CLUSTER%"},
		{Name: "table", ValueFormat: c.Table},
	}
	code := &statsv3.Config_Tag{Name: "code", ValueFormat: "%RESPONSE_CODE%"}
	return logger("envoy.access_loggers.stats", percent(PodStats+c.Table, 0), wire.Message(&statsv3.Config{
		StatsScope: &typev3.Scope{
			Prefix: PodStatsPrefix, EnableEviction: true,
			MaxCounters: wrapperspb.UInt32(maxPodSeries), MaxHistograms: wrapperspb.UInt32(maxPodSeries),
		},
		Counters: []*statsv3.Config_Counter{{
			Stat:       &statsv3.Config_Stat{Name: "requests_total", Tags: append([]*statsv3.Config_Tag{code}, tags...)},
			ValueFixed: wrapperspb.UInt64(1),
		}},
		Histograms: []*statsv3.Config_Histogram{{
			Stat: &statsv3.Config_Stat{Name: "request_duration_ms", Tags: tags},
			Unit: statsv3.Config_Histogram_Milliseconds, ValueFormat: "%DURATION%",
		}},
	}))
}
