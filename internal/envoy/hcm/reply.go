package hcm

import (
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/config/accesslog/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// localReplies changes what the proxy itself answers; backends' answers pass. A request
// that no endpoint took, and of whose body more has come than is kept to send it again,
// is 507 to Envoy while it waits to do so, and 503 at any other time. It is the same thing
// to clients.
func localReplies() *hcmv3.LocalReplyConfig {
	return &hcmv3.LocalReplyConfig{Mappers: []*hcmv3.ResponseMapper{{
		Filter:     status(accesslogv3.ComparisonFilter_EQ, 507, "aether.local_reply.not_kept"),
		StatusCode: wrapperspb.UInt32(503),
	}}}
}

// status passes responses by their status; the runtime key could set another one.
func status(is accesslogv3.ComparisonFilter_Op, code uint32, key string) *accesslogv3.AccessLogFilter {
	return &accesslogv3.AccessLogFilter{FilterSpecifier: &accesslogv3.AccessLogFilter_StatusCodeFilter{
		StatusCodeFilter: &accesslogv3.StatusCodeFilter{Comparison: &accesslogv3.ComparisonFilter{
			Op: is, Value: &corev3.RuntimeUInt32{DefaultValue: code, RuntimeKey: key},
		}},
	}}
}
