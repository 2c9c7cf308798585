package hcm

import (
	"strings"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	filev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/file/v3"
	celv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/access_loggers/filters/cel/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"aether.io/aether/internal/envoy/wire"
)

// statPrefix is the table's name in metric names, where a dot separates.
func statPrefix(table string) string { return strings.ReplaceAll(table, ".", "_") }

// accessLogs installs the loggers of a table. They are always there and closed by the
// runtime layer, because installing one later would be an update of the listener.
func (c Config) accessLogs() ([]*accesslogv3.AccessLog, error) {
	pods, err := c.podStats()
	if err != nil {
		return nil, err
	}
	name, m := "envoy.access_loggers.file", wire.Message(nil)
	switch {
	case c.Collector:
		name = "envoy.access_loggers.open_telemetry"
		if m, err = c.otlpLog(); err != nil {
			return nil, err
		}
	case c.AccessLog != "":
		m = c.fileLog()
	default:
		return []*accesslogv3.AccessLog{pods}, nil
	}
	filter, err := c.logFilter()
	if err != nil {
		return nil, err
	}
	requests, err := logger(name, filter, m)
	return []*accesslogv3.AccessLog{requests, pods}, err
}

func logger(name string, filter *accesslogv3.AccessLogFilter, m wire.Message) (*accesslogv3.AccessLog, error) {
	config, err := wire.Pack(m)
	return &accesslogv3.AccessLog{Name: name, Filter: filter, ConfigType: &accesslogv3.AccessLog_TypedConfig{TypedConfig: config}}, err
}

func (c Config) fileLog() *filev3.FileAccessLog {
	return &filev3.FileAccessLog{
		Path: c.AccessLog,
		AccessLogFormat: &filev3.FileAccessLog_LogFormat{LogFormat: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_JsonFormat{JsonFormat: c.logLine()},
		}},
	}
}

// logLine is one line's keys. The query is left out of the path: it often has secrets.
func (c Config) logLine() *structpb.Struct {
	line := map[string]string{
		"time":             "%START_TIME%",
		"table":            c.Table,
		"route":            "%ROUTE_NAME%",
		"method":           "%REQ(:METHOD)%",
		"host":             "%REQ(:AUTHORITY)%",
		"path":             "%PATH(NQ:ORIG_OR_PATH)%",
		"protocol":         "%PROTOCOL%",
		"status":           "%RESPONSE_CODE%",
		"grpc_status":      "%GRPC_STATUS(SNAKE_STRING)%",
		"flags":            "%RESPONSE_FLAGS%",
		"details":          "%RESPONSE_CODE_DETAILS%",
		"duration_ms":      "%DURATION%",
		"bytes_received":   "%BYTES_RECEIVED%",
		"bytes_sent":       "%BYTES_SENT%",
		"upstream_cluster": "%UPSTREAM_CLUSTER%",
		"upstream_host":    "%UPSTREAM_HOST%",
		"upstream_failure": "%UPSTREAM_TRANSPORT_FAILURE_REASON%",
		"request_id":       "%REQ(X-REQUEST-ID)%",
		"client_address":   "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
		"user_agent":       "%REQ(USER-AGENT)%",
		"tls_version":      "%DOWNSTREAM_TLS_VERSION%",
		"tls_server_name":  "%REQUESTED_SERVER_NAME%",
	}
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(line))}
	for key, format := range line {
		s.Fields[key] = structpb.NewStringValue(format)
	}
	return s
}

// logFilter logs, while the table's log is on, every failure and a share of the rest.
// What a failure is: a status of 500 and above, any response flag, or a gRPC status that
// OpenTelemetry's conventions call a server error.
func (c Config) logFilter() (*accesslogv3.AccessLogFilter, error) {
	failed, err := grpcFailure()
	return all(
		percent(AccessLogEnabled+c.Table, 0),
		anyOf(
			status(accesslogv3.ComparisonFilter_GE, 500, "aether.access_log.failure_status"),
			&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ResponseFlagFilter{
				ResponseFlagFilter: &accesslogv3.ResponseFlagFilter{},
			}},
			failed,
			percent(AccessLogSuccess+c.Table, 100),
		),
	), err
}

// grpcAnswer is an expression for an answer that says it is gRPC, Envoy's own too.
const grpcAnswer = `"content-type" in response.headers && ` +
	`response.headers["content-type"].startsWith("application/grpc") && ` +
	`!response.headers["content-type"].startsWith("application/grpc-web")`

// grpcFailure looks at requests that say they are gRPC and are answered so: for any other
// Envoy would make up a gRPC status from the HTTP status, for 200 that of a failure.
func grpcFailure() (*accesslogv3.AccessLogFilter, error) {
	answer, err := wire.Pack(&celv3.ExpressionFilter{Expression: grpcAnswer})
	return all(
		&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_HeaderFilter{
			HeaderFilter: &accesslogv3.HeaderFilter{Header: &routev3.HeaderMatcher{
				Name: "content-type",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{
					StringMatch: wire.String(`application/grpc([+;].*)?`, true),
				},
			}},
		}},
		&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_GrpcStatusFilter{
			GrpcStatusFilter: &accesslogv3.GrpcStatusFilter{Statuses: []accesslogv3.GrpcStatusFilter_Status{
				accesslogv3.GrpcStatusFilter_UNKNOWN,
				accesslogv3.GrpcStatusFilter_DEADLINE_EXCEEDED,
				accesslogv3.GrpcStatusFilter_UNIMPLEMENTED,
				accesslogv3.GrpcStatusFilter_INTERNAL,
				accesslogv3.GrpcStatusFilter_UNAVAILABLE,
				accesslogv3.GrpcStatusFilter_DATA_LOSS,
			}},
		}},
		&accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_ExtensionFilter{
			ExtensionFilter: &accesslogv3.ExtensionFilter{
				Name:       "envoy.access_loggers.extension_filters.cel",
				ConfigType: &accesslogv3.ExtensionFilter_TypedConfig{TypedConfig: answer},
			},
		}},
	), err
}

// percent passes the share of requests that the runtime key says, and defaultValue of
// them where the layer does not have it.
func percent(key string, defaultValue uint32) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_RuntimeFilter{
		RuntimeFilter: &accesslogv3.RuntimeFilter{
			RuntimeKey:               key,
			PercentSampled:           &typev3.FractionalPercent{Numerator: defaultValue, Denominator: typev3.FractionalPercent_HUNDRED},
			UseIndependentRandomness: true,
		},
	}}
}

func all(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_AndFilter{
		AndFilter: &accesslogv3.AndFilter{Filters: filters},
	}}
}

func anyOf(filters ...*accesslogv3.AccessLogFilter) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_OrFilter{
		OrFilter: &accesslogv3.OrFilter{Filters: filters},
	}}
}
