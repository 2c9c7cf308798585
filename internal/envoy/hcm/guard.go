package hcm

import (
	rbacconfigv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
)

// guardFilter is the name of the filter that refuses what Envoy's parser lets through.
const guardFilter = "aether.guard"

// guard refuses a request with several Host headers (RFC 9112, 3.2), which Envoy would
// join with a comma: whoever reads only one of them would see another host than the
// proxy did.
func guard() *rbacv3.RBAC {
	return &rbacv3.RBAC{Rules: &rbacconfigv3.RBAC{
		Action: rbacconfigv3.RBAC_DENY,
		Policies: map[string]*rbacconfigv3.Policy{"several-hosts": {
			Permissions: []*rbacconfigv3.Permission{{Rule: &rbacconfigv3.Permission_Header{Header: &routev3.HeaderMatcher{
				Name: ":authority",
				HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: &matcherv3.StringMatcher{
					MatchPattern: &matcherv3.StringMatcher_Contains{Contains: ","},
				}},
			}}}},
			Principals: []*rbacconfigv3.Principal{{Identifier: &rbacconfigv3.Principal_Any{Any: true}}},
		}},
	}}
}
