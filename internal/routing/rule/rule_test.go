package rule

import (
	"strings"
	"testing"

	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

func TestAComplaintSaysWhatBecomesOfRequests(t *testing.T) {
	regex := gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Type: ptr.To(gatewayv1.PathMatchRegularExpression), Value: ptr.To("/(?=a)")}}
	prefix := gatewayv1.HTTPRouteMatch{Path: &gatewayv1.HTTPPathMatch{Value: ptr.To("/a")}}
	const gets500, unread = "requests that match get 500", "what is not understood matches nothing"
	for name, c := range map[string]struct {
		rule      gatewayv1.HTTPRouteRule
		says, not string
	}{
		"a rule that cannot be served answers 500":      {gatewayv1.HTTPRouteRule{Retry: &gatewayv1.HTTPRouteRetry{}}, gets500, unread},
		"a match that is not understood gets no 500":    {gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{regex}}, unread, gets500},
		"of a match beside one that is understood, too": {gatewayv1.HTTPRouteRule{Matches: []gatewayv1.HTTPRouteMatch{regex, prefix}}, gets500 + "; " + unread, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &gatewayv1.HTTPRoute{}
			r.Spec.Rules = []gatewayv1.HTTPRouteRule{c.rule}
			got := Compile(r, nil).Complaint().Message
			if !strings.Contains(got, c.says) || strings.Contains(got, c.not) {
				t.Errorf("it says %q, want %q in it and not %q", got, c.says, c.not)
			}
		})
	}
}
