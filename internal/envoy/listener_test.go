package envoy_test

import (
	"strings"
	"testing"

	"aether.io/aether/internal/envoy"
)

func TestListenersThatWouldBeLessSafeThanTheySoundAreRefused(t *testing.T) {
	secret := []string{"ns/cert"}
	for name, tc := range map[string]struct {
		listener envoy.Listener
		want     string // in the error; empty: it is taken
	}{
		"clients and trusted peers":                   {envoy.Listener{Proxied: envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: []string{"10.0.0.0/8"}}, Chains: []envoy.Chain{{Name: "t", Secrets: secret, Clients: envoy.ClientCertificates{Trust: "ns/x"}}}}, ""},
		"clients are verified without a certificate":  {chainOf(envoy.Chain{Name: "t", Clients: envoy.ClientCertificates{Trust: "ns/x"}}), "TLS: there is no certificate"},
		"a version is asked for without TLS":          {chainOf(envoy.Chain{Name: "t", MinTLS13: true}), "TLS: there is no certificate"},
		"clients are optional and verified by nobody": {chainOf(envoy.Chain{Name: "t", Secrets: secret, Clients: envoy.ClientCertificates{Optional: true}}), "trust: there are none"},
		"trust with a name that does not print":       {chainOf(envoy.Chain{Name: "t", Secrets: secret, Clients: envoy.ClientCertificates{Trust: "a b"}}), "trust: has a space"},
		"a port that is none":                         {chainOf(envoy.Chain{Name: "t", Port: 70000}), "port: 70000 is no port"},
		"peers are trusted and no header is taken":    {envoy.Listener{Proxied: envoy.Proxied{Trusted: []string{"10.0.0.0/8"}}, Chains: []envoy.Chain{{Name: "t"}}}, "PROXY protocol: there are trusted peers"},
		"a mode that is none":                         {envoy.Listener{Proxied: envoy.Proxied{Mode: 9}, Chains: []envoy.Chain{{Name: "t"}}}, "PROXY protocol: mode 9"},
		"a range that is none":                        {envoy.Listener{Proxied: envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: []string{"10.0.0.0"}}, Chains: []envoy.Chain{{Name: "t"}}}, "PROXY protocol: "},
	} {
		l := tc.listener
		l.Name, l.Address, l.Port = "ns/gw/443", "0.0.0.0", 443
		err := l.Validate()
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := l.Resource(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", name, err, tc.want)
		}
	}
}
