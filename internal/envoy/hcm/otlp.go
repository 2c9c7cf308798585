package hcm

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	otelv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/open_telemetry/v3"
	detectorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/tracers/opentelemetry/resource_detectors/v3"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

const (
	// A worker keeps log records until it has this much of them, or for this long.
	logBuffer = 16 << 10
	logWait   = time.Second
)

// attributes are what log records and spans have of a request, named by OpenTelemetry's
// semantic conventions where these have a name. The query is left out of the path, as in
// the log's lines. Envoy makes all of them strings, those that are numbers too.
func (c Config) attributes() map[string]string {
	of := map[string]string{
		"http.request.method":        "%REQ(:METHOD)%",
		"http.response.status_code":  "%RESPONSE_CODE%",
		"http.request.body.size":     "%BYTES_RECEIVED%",
		"http.response.body.size":    "%BYTES_SENT%",
		"url.scheme":                 "%REQ(:SCHEME)%",
		"url.path":                   "%PATH(NQ:ORIG_OR_PATH)%",
		"server.address":             "%REQ(:AUTHORITY)%",
		"client.address":             "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
		"user_agent.original":        "%REQ(USER-AGENT)%",
		"network.protocol.name":      "http",
		"network.protocol.version":   protocolVersion,
		"network.peer.address":       "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%",
		"rpc.response.status_code":   "%GRPC_STATUS(SNAKE_STRING)%",
		"tls.protocol.version":       "%DOWNSTREAM_TLS_VERSION%",
		"tls.client.server_name":     "%REQUESTED_SERVER_NAME%",
		"aether.table":               c.Table,
		"aether.route":               "%ROUTE_NAME%",
		"aether.request_id":          "%REQ(X-REQUEST-ID)%",
		"aether.duration_ms":         "%DURATION%",
		"envoy.response_flags":       "%RESPONSE_FLAGS%",
		"envoy.response_code_detail": "%RESPONSE_CODE_DETAILS%",
		"envoy.upstream_cluster":     "%UPSTREAM_CLUSTER%",
		"envoy.upstream_host":        "%UPSTREAM_HOST%",
		"envoy.upstream_failure":     "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
	}
	if c.Port != 0 {
		of["server.port"] = strconv.FormatUint(uint64(c.Port), 10)
	}
	return of
}

// protocolVersion is the number alone, as the conventions have it.
const protocolVersion = `%CEL(request.protocol == 'HTTP/2' ? '2' : request.protocol == 'HTTP/3' ? '3' : request.protocol == 'HTTP/1.0' ? '1.0' : '1.1')%`

// service is the Gateway whose table it is: a service in the conventions' sense.
func (c Config) service() (namespace, name string) {
	namespace, name, _ = strings.Cut(c.Table, "/")
	name, _, _ = strings.Cut(name, "/")
	return namespace, name
}

// otlpLog sends the log to the collector. What it can't send it drops and counts.
func (c Config) otlpLog() (*otelv3.OpenTelemetryAccessLogConfig, error) {
	detectors, err := c.detectors()
	if err != nil {
		return nil, err
	}
	_, name := c.service()
	return &otelv3.OpenTelemetryAccessLogConfig{
		GrpcService:          collector(),
		LogName:              c.Table,
		StatPrefix:           statPrefix(c.Table) + ".",
		BufferFlushInterval:  durationpb.New(logWait),
		BufferSizeBytes:      wrapperspb.UInt32(logBuffer),
		DisableBuiltinLabels: true,
		ResourceAttributes:   keyValues(map[string]string{"service.name": name}),
		ResourceDetectors:    detectors,
		Body:                 text("%REQ(:METHOD)% %PATH(NQ:ORIG_OR_PATH)% %RESPONSE_CODE%"),
		Attributes:           keyValues(c.attributes()),
	}, nil
}

// collector is the service that everything is exported to. How long a request may take is
// its cluster's to say: Envoy's loggers and tracers know no timeout.
func collector() *corev3.GrpcService {
	return &corev3.GrpcService{
		TargetSpecifier: &corev3.GrpcService_EnvoyGrpc_{
			EnvoyGrpc: &corev3.GrpcService_EnvoyGrpc{ClusterName: wire.CollectorCluster, SkipEnvoyHeaders: true},
		},
	}
}

// detectors add what the exporter's resource is: the Gateway's namespace, and the pod, which
// OTEL_RESOURCE_ATTRIBUTES of Envoy's environment says.
func (c Config) detectors() ([]*corev3.TypedExtensionConfig, error) {
	namespace, _ := c.service()
	static, err := wire.Pack(&detectorv3.StaticConfigResourceDetectorConfig{Attributes: map[string]string{"service.namespace": namespace}})
	if err != nil {
		return nil, err
	}
	environment, err := wire.Pack(&detectorv3.EnvironmentResourceDetectorConfig{})
	return []*corev3.TypedExtensionConfig{
		{Name: "envoy.tracers.opentelemetry.resource_detectors.static_config", TypedConfig: static},
		{Name: "envoy.tracers.opentelemetry.resource_detectors.environment", TypedConfig: environment},
	}, err
}

func keyValues(of map[string]string) *commonv1.KeyValueList {
	list := &commonv1.KeyValueList{}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list.Values = append(list.Values, &commonv1.KeyValue{Key: key, Value: text(of[key])})
	}
	return list
}

func text(s string) *commonv1.AnyValue {
	return &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: s}}
}
