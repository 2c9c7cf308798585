package rule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/routing/condition"
	"aether.io/aether/internal/routing/key"
	"aether.io/aether/internal/routing/rule"
)

// compile compiles one rule of which every backend is good.
func compile(rules ...gatewayv1.HTTPRouteRule) rule.Set {
	r := &gatewayv1.HTTPRoute{}
	r.Namespace, r.Name, r.Spec.Rules = "ns", "r", rules
	return rule.Compile(r, func(ref *gatewayv1.BackendRef) (key.Service, condition.Problem) {
		return key.Service{Service: key.Name{Namespace: "ns", Name: string(ref.Name)}, Port: 80}, condition.Problem{}
	})
}

func TestTimeoutsBecomeOneLimit(t *testing.T) {
	for _, c := range []struct {
		request, backend gatewayv1.Duration // empty: absent
		want             time.Duration
	}{
		{"", "", 0},
		{"1s", "", time.Second},
		{"", "250ms", 250 * time.Millisecond},
		{"2s", "1s", time.Second},
		{"0s", "1s", time.Second},
		{"1h30m10s500ms", "0s", 90*time.Minute + 10500*time.Millisecond},
		{"0h0m0s", "0ms", 0},
		{"1s1s1s1s", "", 4 * time.Second},
	} {
		t.Run(fmt.Sprintf("request %q, backend %q", c.request, c.backend), func(t *testing.T) {
			limits := &gatewayv1.HTTPRouteTimeouts{}
			if c.request != "" {
				limits.Request = &c.request
			}
			if c.backend != "" {
				limits.BackendRequest = &c.backend
			}
			set := compile(gatewayv1.HTTPRouteRule{Timeouts: limits})
			if got := set.Matches[0].Timeout; got != c.want || len(set.Invalid) > 0 {
				t.Errorf("got %s, want %s; invalid: %v", got, c.want, set.Invalid)
			}
		})
	}
}

func TestSharesToMirrorAreMillionths(t *testing.T) {
	for name, c := range map[string]struct {
		percent  *int32
		fraction *gatewayv1.Fraction
		want     uint32 // 0: nothing is mirrored
	}{
		"nothing said":                        {want: 1_000_000},
		"a percentage":                        {percent: ptr.To[int32](42), want: 420_000},
		"nothing":                             {percent: ptr.To[int32](0)},
		"a fraction":                          {fraction: &gatewayv1.Fraction{Numerator: 2, Denominator: ptr.To[int32](3)}, want: 666_667},
		"a fraction of a hundred, by default": {fraction: &gatewayv1.Fraction{Numerator: 5}, want: 50_000},
		"a fraction of nothing":               {fraction: &gatewayv1.Fraction{Numerator: 0, Denominator: ptr.To[int32](3)}},
		"all of it":                           {fraction: &gatewayv1.Fraction{Numerator: 7, Denominator: ptr.To[int32](7)}, want: 1_000_000},
		"less than a millionth":               {fraction: &gatewayv1.Fraction{Numerator: 1, Denominator: ptr.To[int32](2_000_000_000)}, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			set := compile(gatewayv1.HTTPRouteRule{Filters: []gatewayv1.HTTPRouteFilter{{
				Type: gatewayv1.HTTPRouteFilterRequestMirror, RequestMirror: &gatewayv1.HTTPRequestMirrorFilter{
					BackendRef: gatewayv1.BackendObjectReference{Name: "spy"}, Percent: c.percent, Fraction: c.fraction,
				},
			}}})
			var got uint32
			for _, m := range set.Matches[0].Mirrors {
				got += m.PerMillion
			}
			if got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestRulesAreCalledByTheirNamesIfThoseAreTheirOwn(t *testing.T) {
	var rules []gatewayv1.HTTPRouteRule
	for _, name := range []gatewayv1.SectionName{"", "cart", "3", "cart", "v2.cart", "4x"} {
		r := gatewayv1.HTTPRouteRule{}
		if name != "" {
			r.Name = &name
		}
		rules = append(rules, r)
	}
	var got []string
	for _, m := range compile(rules...).Matches {
		got = append(got, m.Name)
	}
	want := []string{"ns/r/0/0", "ns/r/cart/0", "ns/r/2/0", "ns/r/3/0", "ns/r/v2.cart/0", "ns/r/4x/0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
