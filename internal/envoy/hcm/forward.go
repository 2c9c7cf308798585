package hcm

import (
	"strconv"

	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	headerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/early_header_mutation/header_mutation/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"aether.io/aether/internal/envoy/wire"
)

const (
	overwrite = corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD
	add       = corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD
	ifAbsent  = corev3.HeaderValueOption_ADD_IF_ABSENT
)

// earlyMutation is what happens to a request's headers before anything looks at them: the
// scope key is written over whatever the client sent, and what is said of the way that
// the request took is left standing only if a trusted proxy said it. The peer is added
// here and not by Envoy, which would write its own address for a peer on loopback, and
// the address in a PROXY header whoever sent that. X-Forwarded-Proto comes from Envoy.
func (c Config) earlyMutation() (*corev3.TypedExtensionConfig, error) {
	key := ScopeKey(c.Table, AnyHost)
	if c.PerHost {
		key = ScopeKey(c.Table, authority)
	}
	list := []*mutationv3.HeaderMutation{set(ScopeHeader, key, overwrite), removePrefix(envoyHeaders)}
	how := ifAbsent
	if c.TrustedHops == 0 {
		how = overwrite
		list = append(list, forged()...)
	}
	list = append(list, set("x-forwarded-host", authority, how))
	if c.Port != 0 {
		list = append(list, set("x-forwarded-port", strconv.FormatUint(uint64(c.Port), 10), how))
	}
	peer := "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
	if c.Direct {
		peer = "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"
	}
	list = append(list, set("x-forwarded-for", peer, add))
	if c.Collector {
		list = append(list, hideTrace()...)
	}
	config, err := wire.Pack(&headerv3.HeaderMutation{Mutations: list})
	return &corev3.TypedExtensionConfig{
		Name:        "envoy.http.early_header_mutation.header_mutation",
		TypedConfig: config,
	}, err
}

// envoyHeaders is how the names begin of headers by which clients could tell Envoy, or one
// behind it, what to do. Envoy itself removes only those that it knows.
const envoyHeaders = "x-envoy-"

// forged removes what a client says of itself and of proxies that are not there.
func forged() []*mutationv3.HeaderMutation {
	return []*mutationv3.HeaderMutation{removePrefix("x-forwarded-"), remove("forwarded"), remove("x-real-ip")}
}

func remove(name string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Remove{Remove: name}}
}

func removePrefix(prefix string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_RemoveOnMatch_{
		RemoveOnMatch: &mutationv3.HeaderMutation_RemoveOnMatch{KeyMatcher: &matcherv3.StringMatcher{
			MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: prefix},
		}},
	}}
}

func set(name, value string, how corev3.HeaderValueOption_HeaderAppendAction) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: name, Value: value},
		AppendAction: how,
	}}}
}
