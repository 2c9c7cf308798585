package rule_test

import (
	"testing"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestPathsMeanWhatTheyMeanInARequest(t *testing.T) {
	for name, c := range map[string]struct {
		kind        gatewayv1.PathMatchType
		value, want string
	}{
		"an exact path":        {gatewayv1.PathMatchExact, "/%61/%2e%2E/%7euser", "/~user"},
		"a prefix":             {gatewayv1.PathMatchPathPrefix, "/caf%c3%a9/", "/caf%C3%A9/"},
		"a regular expression": {gatewayv1.PathMatchRegularExpression, "/%61|/%7E", "/%61|/%7E"},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{{
				Path: &gatewayv1.HTTPPathMatch{Type: &c.kind, Value: ptr.To(c.value)},
			}}})
			if len(set.Matches) != 1 || set.Matches[0].Path.Value != c.want {
				t.Errorf("got %+v, want %s", set.Matches, c.want)
			}
		})
	}
}
