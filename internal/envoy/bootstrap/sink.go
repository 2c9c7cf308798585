package bootstrap

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	metricsv3 "github.com/envoyproxy/go-control-plane/envoy/config/metrics/v3"
	sinkv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/stat_sinks/open_telemetry/v3"
	detectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"

	"aether.io/aether/internal/envoy/wire"
)

// maxPoints bounds one request to the collector.
const maxPoints = 2000

// statsSinks has the metrics that are kept go to the collector at each flush. While nobody
// answers they are lost; /metrics has them all the same.
func statsSinks(service string) ([]*metricsv3.StatsSink, error) {
	static, err := wire.Pack(&detectorv3.StaticConfigResourceDetectorConfig{Attributes: map[string]string{"service.name": service}})
	if err != nil {
		return nil, err
	}
	environment, err := wire.Pack(&detectorv3.EnvironmentResourceDetectorConfig{})
	if err != nil {
		return nil, err
	}
	config, err := wire.Pack(&sinkv3.SinkConfig{
		ProtocolSpecifier: &sinkv3.SinkConfig_GrpcService{GrpcService: &corev3.GrpcService{
			TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{
				ClusterName: wire.MetricsCluster, SkipEnvoyHeaders: true,
			}},
		}},
		ResourceDetectors: []*corev3.TypedExtensionConfig{
			{Name: "envoy.tracers.opentelemetry.resource_detectors.static_config", TypedConfig: static},
			{Name: "envoy.tracers.opentelemetry.resource_detectors.environment", TypedConfig: environment},
		},
		Prefix:                  "envoy",
		MaxDataPointsPerRequest: maxPoints,
	})
	return []*metricsv3.StatsSink{{
		Name:       "envoy.stat_sinks.open_telemetry",
		ConfigType: &metricsv3.StatsSink_TypedConfig{TypedConfig: config},
	}}, err
}
