package backend_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/routing/backend"
	"aether.io/aether/internal/routing/key"
)

// endpoint is one whose conditions are said by letters: r(eady), s(erving), t(erminating),
// in upper case for true, in lower case for false, left out for unknown.
func endpoint(conditions string, addresses ...string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: addresses}
	for _, c := range conditions {
		switch c {
		case 'R', 'r':
			e.Conditions.Ready = ptr.To(c == 'R')
		case 'S', 's':
			e.Conditions.Serving = ptr.To(c == 'S')
		case 'T', 't':
			e.Conditions.Terminating = ptr.To(c == 'T')
		}
	}
	return e
}

func slice(port int32, list ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Name: ptr.To("web"), Port: &port}}, Endpoints: list}
}

func TestWhichEndpointsRequestsGoTo(t *testing.T) {
	at := func(ip string, port uint32) envoy.Address { return envoy.Address{IP: ip, Port: port} }
	tests := map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   []envoy.Address
	}{
		"nothing said is ready": {[]*discoveryv1.EndpointSlice{slice(1, endpoint("", "10.0.0.1"))}, []envoy.Address{at("10.0.0.1", 1)}},
		"ready though it terminates: unready pods are published": {
			[]*discoveryv1.EndpointSlice{slice(1, endpoint("RST", "10.0.0.1"))}, []envoy.Address{at("10.0.0.1", 1)},
		},
		"none of those that start":             {[]*discoveryv1.EndpointSlice{slice(1, endpoint("rS", "10.0.0.1"), endpoint("rSt", "10.0.0.2"))}, nil},
		"none of those that have failed":       {[]*discoveryv1.EndpointSlice{slice(1, endpoint("rs", "10.0.0.1"), endpoint("rsT", "10.0.0.2"))}, nil},
		"those that leave, if none is ready":   {[]*discoveryv1.EndpointSlice{slice(1, endpoint("rST", "10.0.0.2"), endpoint("rT", "10.0.0.1"))}, []envoy.Address{at("10.0.0.1", 1), at("10.0.0.2", 1)}},
		"no one that leaves, if one is ready":  {[]*discoveryv1.EndpointSlice{slice(1, endpoint("rST", "10.0.0.2")), slice(1, endpoint("R", "10.0.0.1"))}, []envoy.Address{at("10.0.0.1", 1)}},
		"ready in another family, other port":  {[]*discoveryv1.EndpointSlice{slice(1, endpoint("rST", "10.0.0.2")), slice(2, endpoint("R", "fd00::1"))}, []envoy.Address{at("fd00::1", 2)}},
		"each once, in order, whatever slices": {[]*discoveryv1.EndpointSlice{slice(2, endpoint("R", "10.0.0.1", "10.0.0.1")), slice(1, endpoint("R", "10.0.0.2")), slice(1, endpoint("R", "::ffff:10.0.0.2"), endpoint("R", "10.0.0.1"))}, []envoy.Address{at("10.0.0.1", 1), at("10.0.0.1", 2), at("10.0.0.2", 1)}},
		"nothing that is no unicast address": {
			[]*discoveryv1.EndpointSlice{slice(1, endpoint("R", "pod.example.com", "0.0.0.0", "224.0.0.1", "fe80::1%eth0", ""))}, nil,
		},
		"nothing without a number": {[]*discoveryv1.EndpointSlice{slice(0, endpoint("R", "10.0.0.1")), {Ports: []discoveryv1.EndpointPort{{Name: ptr.To("web")}}, Endpoints: []discoveryv1.Endpoint{endpoint("R", "10.0.0.1")}}}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var e backend.Endpoints
			for _, s := range tt.slices {
				e.Add(s, "web")
			}
			if diff := cmp.Diff(tt.want, e.Addresses()); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
			if e.Add(slice(1, endpoint("R", "10.0.0.9")), "other") {
				t.Error("a slice without the port was taken in")
			}
		})
	}
}

func TestWhatAnAppProtocolMeans(t *testing.T) {
	unknown := backend.Port{Name: "unknown"}
	for protocol, want := range map[string]backend.Port{
		"":                   {Protocol: envoy.HTTP1},
		"http":               {Protocol: envoy.HTTP1},
		"kubernetes.io/ws":   {Protocol: envoy.HTTP1},
		"HTTPS":              {Protocol: envoy.HTTP1, Secure: true},
		"kubernetes.io/wss":  {Protocol: envoy.HTTP1, Secure: true},
		"kubernetes.io/h2c":  {Protocol: envoy.HTTP2},
		"grpc":               {Protocol: envoy.HTTP2},
		"mysql":              unknown,
		"example.com/custom": unknown,
	} {
		s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolUDP}, {Port: 80, AppProtocol: &protocol}}}}
		got := backend.ReadPort(key.Service{Port: 80}, s)
		if want == unknown {
			if got.Invalid.Reason != "UnsupportedProtocol" {
				t.Errorf("%q: got %+v, want UnsupportedProtocol", protocol, got)
			}
		} else if got != want {
			t.Errorf("%q: got %+v, want %+v", protocol, got, want)
		}
	}
}

// A slice made by hand may say anything of pods: a name that none can have, or that of one of another
// namespace, would stand in metrics as if that one had been asked.
func TestAnAddressIsOfNoPodThatItsSliceCannotSpeakOf(t *testing.T) {
	of := func(ref *corev1.ObjectReference) envoy.Address {
		s := slice(1, endpoint("R", "10.0.0.1"))
		s.Namespace, s.Endpoints[0].TargetRef = "shop", ref
		var e backend.Endpoints
		e.Add(s, "web")
		return e.Addresses()[0]
	}
	known := envoy.Address{IP: "10.0.0.1", Port: 1, Pod: "cart-1", Namespace: "shop"}
	unknown := envoy.Address{IP: "10.0.0.1", Port: 1}
	for name, tt := range map[string]struct {
		ref  *corev1.ObjectReference
		want envoy.Address
	}{
		"its own":               {&corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "cart-1"}, known},
		"its own, unsaid":       {&corev1.ObjectReference{Kind: "Pod", Name: "cart-1"}, known},
		"another namespace's":   {&corev1.ObjectReference{Kind: "Pod", Namespace: "bank", Name: "cart-1"}, unknown},
		"a name that none has":  {&corev1.ObjectReference{Kind: "Pod", Name: "a\",code=\"5\n"}, unknown},
		"a name that is long":   {&corev1.ObjectReference{Kind: "Pod", Name: strings.Repeat("a", 1<<10)}, unknown},
		"none":                  {nil, unknown},
		"something that is not": {&corev1.ObjectReference{Kind: "Node", Name: "n"}, unknown},
	} {
		if diff := cmp.Diff(tt.want, of(tt.ref)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
