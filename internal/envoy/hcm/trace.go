package hcm

import (
	"maps"
	"slices"

	xdscorev3 "github.com/cncf/xds/go/xds/core/v3"
	matchv3 "github.com/cncf/xds/go/xds/type/matcher/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	tracev3 "github.com/envoyproxy/go-control-plane/envoy/config/trace/v3"
	matchingv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/matching/v3"
	valuev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	compositev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/composite/v3"
	headersv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3"
	statev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	inputv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	tagv3 "github.com/envoyproxy/go-control-plane/envoy/type/tracing/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/envoy/wire"
)

// sampleFilter is the name of the filter that chooses which requests are traced.
const sampleFilter = "aether.trace"

// ForceTraceHeader has Envoy trace a request. Nobody but the filter can set it, and every
// scope keeps it from going upstream.
const ForceTraceHeader = "x-envoy-force-trace"

// tracing installs the tracer, which traces nothing by itself: Envoy's own sampling has one
// runtime key for the process, and a number for each route or connection manager, so that a
// table's rate could be changed only by an update of all its routes or of its listener.
func (c Config) tracing() (*hcmv3.HttpConnectionManager_Tracing, error) {
	if !c.Collector {
		return nil, nil
	}
	detectors, err := c.detectors()
	if err != nil {
		return nil, err
	}
	_, name := c.service()
	config, err := wire.Pack(&tracev3.OpenTelemetryConfig{
		GrpcService: collector(), ServiceName: name, ResourceDetectors: detectors, MaxCacheSize: wrapperspb.UInt32(maxSpans),
	})
	if err != nil {
		return nil, err
	}
	return &hcmv3.HttpConnectionManager_Tracing{
		ClientSampling: &typev3.Percent{},
		RandomSampling: &typev3.Percent{},
		// Envoy would tell backends of a trace, and of whether it is sampled, for requests
		// that are not traced too. It is told by sample, for those that are.
		NoContextPropagation: true,
		Operation:            "%REQ(:METHOD)% %ROUTE_NAME%",
		CustomTags:           c.tags(),
		Provider: &tracev3.Tracing_Http{
			Name:       "envoy.tracers.opentelemetry",
			ConfigType: &tracev3.Tracing_Http_TypedConfig{TypedConfig: config},
		},
	}, nil
}

// maxSpans is how many a worker keeps that are not sent yet; more are lost.
const maxSpans = 1024

func (c Config) tags() []*tagv3.CustomTag {
	of := c.attributes()
	// Envoy's own tags of these names have the query.
	of["grpc.path"] = "%PATH(NQ:ORIG_OR_PATH)%"
	of["http.url"] = "%REQ(:SCHEME)%://%REQ(:AUTHORITY)%%PATH(NQ:ORIG_OR_PATH)%"
	var list []*tagv3.CustomTag
	for _, key := range slices.Sorted(maps.Keys(of)) {
		list = append(list, &tagv3.CustomTag{Tag: key, Type: &tagv3.CustomTag_Value{Value: of[key]}})
	}
	return list
}

// The headers of W3C's Trace Context, and those that keep a client's while Envoy chooses.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
	kept        = "x-aether-"
)

// hideTrace keeps a client's trace context from Envoy's tracer, which would leave it to the
// client whether a request is traced.
func hideTrace() []*mutationv3.HeaderMutation {
	var list []*mutationv3.HeaderMutation
	for _, name := range []string{traceParent, traceState} {
		list = append(list, remove(kept+name), set(kept+name, "%REQ("+name+")%", add), remove(name))
	}
	return list
}

// showTrace undoes it: what is not traced passes as it came.
func showTrace() []*mutationv3.HeaderMutation {
	var list []*mutationv3.HeaderMutation
	for _, name := range []string{traceParent, traceState} {
		list = append(list, set(name, "%REQ("+kept+name+")%", add), remove(kept+name))
	}
	return list
}

// sample marks the share of requests that the runtime layer says, whose trace Envoy then
// takes up when it looks the route up again, and tells the backend of it.
func (c Config) sample() (*matchingv3.ExtensionWithMatcher, error) {
	mark, err := wire.Pack(&headersv3.HeaderMutation{Mutations: &headersv3.Mutations{
		RequestMutations: []*mutationv3.HeaderMutation{
			set(ForceTraceHeader, "true", overwrite), set(traceParent, "00-%TRACE_ID%-%SPAN_ID%-01", overwrite), remove(traceState),
		},
	}})
	if err != nil {
		return nil, err
	}
	again, err := wire.Pack(&statev3.Config{ClearRouteCache: true, OnRequestHeaders: []*valuev3.FilterStateValue{{
		Key:        &valuev3.FilterStateValue_ObjectKey{ObjectKey: sampleFilter},
		FactoryKey: "envoy.string",
		Value: &valuev3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: wire.Text("traced")},
		}},
	}}})
	if err != nil {
		return nil, err
	}
	action, err := wire.Pack(&compositev3.ExecuteFilterAction{
		FilterChain: &compositev3.FilterChainConfiguration{TypedConfig: []*corev3.TypedExtensionConfig{
			{Name: sampleFilter + ".mark", TypedConfig: mark},
			{Name: sampleFilter + ".again", TypedConfig: again},
		}},
		SamplePercent: &corev3.RuntimeFractionalPercent{
			RuntimeKey:   TraceSample + c.Table,
			DefaultValue: &typev3.FractionalPercent{Denominator: typev3.FractionalPercent_MILLION},
		},
	})
	if err != nil {
		return nil, err
	}
	input, err := wire.Pack(&inputv3.HttpRequestHeaderMatchInput{HeaderName: ScopeHeader})
	if err != nil {
		return nil, err
	}
	// A filter's action wants a predicate: one that is true of every request.
	always := &matchv3.Matcher_MatcherList_Predicate{MatchType: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate_{
		SinglePredicate: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate{
			Input: &xdscorev3.TypedExtensionConfig{Name: "scope", TypedConfig: input},
			Matcher: &matchv3.Matcher_MatcherList_Predicate_SinglePredicate_ValueMatch{ValueMatch: &matchv3.StringMatcher{
				MatchPattern: &matchv3.StringMatcher_Prefix{Prefix: ScopeKey(c.Table, "")},
			}},
		},
	}}
	none, err := wire.Pack(&compositev3.Composite{})
	return &matchingv3.ExtensionWithMatcher{ExtensionConfig: &corev3.TypedExtensionConfig{Name: sampleFilter, TypedConfig: none}, XdsMatcher: &matchv3.Matcher{MatcherType: &matchv3.Matcher_MatcherList_{
		MatcherList: &matchv3.Matcher_MatcherList{Matchers: []*matchv3.Matcher_MatcherList_FieldMatcher{{
			Predicate: always,
			OnMatch: &matchv3.Matcher_OnMatch{OnMatch: &matchv3.Matcher_OnMatch_Action{
				Action: &xdscorev3.TypedExtensionConfig{Name: sampleFilter, TypedConfig: action},
			}},
		}}},
	}}}, err
}
