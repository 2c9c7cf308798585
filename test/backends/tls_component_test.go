//go:build component

package backends_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTLSToBackends has one Service for each case, all of them in one instance.
func TestTLSToBackends(t *testing.T) {
	ours, theirs, machine := newAuthority(t, "ours"), newAuthority(t, "theirs"), newAuthority(t, "machine")
	const refs = `caCertificateRefs: [{group: "", kind: ConfigMap, name: ours}]`
	cases := map[string]struct {
		config   *tls.Config // nil: the backend speaks plaintext
		h2       bool
		protocol string
		policy   string // its validation; empty: there is none
		code     int
		sni      string // that arrives
		silent   bool   // nothing may arrive, not even a request that fails
		says     []string
		route    string // what the route says
	}{
		"right": {config: ours.server("right.test"), policy: `hostname: right.test, ` + refs, code: 200, sni: "right.test"},
		"without-a-policy": {
			config: ours.server("right.test"), protocol: "HTTPS", code: 500, silent: true, route: "UnsupportedProtocol",
		},
		"wrong-authority":     {config: theirs.server("right.test"), policy: `hostname: right.test, ` + refs, code: 503, silent: true},
		"wrong-name":          {config: ours.server("wrong.test"), policy: `hostname: right.test, ` + refs, code: 503, silent: true},
		"plaintext-backend":   {policy: `hostname: right.test, ` + refs, code: 503, silent: true},
		"wildcard-of-backend": {config: ours.server("*.wild.test"), policy: `hostname: a.wild.test, ` + refs, code: 200, sni: "a.wild.test"},
		"h2":                  {config: ours.server("right.test"), h2: true, protocol: "kubernetes.io/h2c", policy: `hostname: right.test, ` + refs, code: 200, sni: "right.test"},
		"wss":                 {config: ours.server("right.test"), protocol: "kubernetes.io/wss", policy: `hostname: right.test, ` + refs, code: 200, sni: "right.test"},
		"uri": {
			config: ours.server("spiffe://test/a"), code: 200, sni: "right.test",
			policy: `hostname: right.test, subjectAltNames: [{type: Hostname, hostname: other.test}, {type: URI, uri: "spiffe://test/a"}], ` + refs,
		},
		"wrong-uri": {
			config: ours.server("spiffe://test/a"), code: 503, silent: true,
			policy: `hostname: right.test, subjectAltNames: [{type: URI, uri: "spiffe://test/b"}], ` + refs,
		},
		"hostname-is-not-among-them": {
			config: ours.server("right.test"), code: 503, silent: true,
			policy: `hostname: right.test, subjectAltNames: [{type: Hostname, hostname: other.test}], ` + refs,
		},
		"wildcard-of-policy": {
			config: ours.server("pod-1.pods.test"), code: 200, sni: "right.test",
			policy: `hostname: right.test, subjectAltNames: [{type: Hostname, hostname: "*.pods.test"}], ` + refs,
		},
		"not-below-the-wildcard": {
			config: ours.server("pods.test", "xpods.test"), code: 503, silent: true,
			policy: `hostname: right.test, subjectAltNames: [{type: Hostname, hostname: "*.pods.test"}], ` + refs,
		},
		"system":            {config: machine.server("right.test"), policy: `hostname: right.test, wellKnownCACertificates: System`, code: 200, sni: "right.test"},
		"not-of-the-system": {config: ours.server("right.test"), policy: `hostname: right.test, wellKnownCACertificates: System`, code: 503, silent: true},
		"no-authority": {
			policy: `hostname: right.test, caCertificateRefs: [{group: "", kind: ConfigMap, name: nowhere}]`, code: 500, silent: true,
			says: []string{"NoValidCACertificate", "InvalidCACertificateRef"}, route: "InvalidBackendTLSPolicy",
		},
		"no-such-kind": {
			policy: `hostname: right.test, caCertificateRefs: [{group: example.com, kind: Bucket, name: ours}]`, code: 500, silent: true,
			says: []string{"NoValidCACertificate", "InvalidKind"}, route: "InvalidBackendTLSPolicy",
		},
		"one-of-two": {
			config: ours.server("right.test"), code: 200, sni: "right.test",
			policy: `hostname: right.test, caCertificateRefs: [{group: "", kind: ConfigMap, name: nowhere}, {group: "", kind: ConfigMap, name: ours}]`,
			says:   []string{"InvalidCACertificateRef"},
		},
	}
	bundle := filepath.Join(t.TempDir(), "bundle.pem")
	if err := os.WriteFile(bundle, machine.CertPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	servers := map[string]*server{}
	var text strings.Builder
	text.WriteString(configMap("ours", ours) + ours.client("client", "gateway known"))
	for name, c := range cases {
		servers[name] = serve(t, name, c.h2, c.config)
		text.WriteString(service(name, `"`+c.protocol+`"`, servers[name].port, ready) + route(name, name))
		if c.policy != "" {
			text.WriteString(policy(name, c.policy))
		}
	}
	w := start(t, map[string]string{"all.yaml": text.String()}, "--controller-flag=--system-ca-file="+bundle)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := &world{Instance: w.Instance, t: t, client: w.client}
			got := w.answers(port, name, c.code)
			proto := map[bool]string{false: "HTTP/1.1", true: "HTTP/2.0"}[c.h2]
			if c.code == http.StatusOK && (got.SNI != c.sni || got.Proto != proto || got.Backend != name || got.Client != "") {
				t.Errorf("the backend saw %+v, want SNI %s by %s and no certificate", got, c.sni, proto)
			}
			if n := servers[name].requests.Load(); c.silent && n > 0 {
				t.Errorf("%d requests arrived", n)
			}
			if c.says != nil {
				w.says("backendtlspolicy", name, c.says...)
			}
			if c.route != "" {
				w.says("httproute", name, c.route)
			}
		})
	}
}

// TestAGatewaysCertificateIsShownByThatGatewayAlone: both are served by one proxy.
func TestAGatewaysCertificateIsShownByThatGatewayAlone(t *testing.T) {
	ours := newAuthority(t, "ours")
	pool := ours.Pool()
	asks, demands := ours.server("right.test"), ours.server("right.test")
	asks.ClientAuth, asks.ClientCAs = tls.VerifyClientCertIfGiven, pool
	demands.ClientAuth, demands.ClientCAs = tls.RequireAndVerifyClientCert, pool
	one, two, plain := serve(t, "asks", false, asks), serve(t, "demands", false, demands), serve(t, "plain", false, nil)
	const valid = `hostname: right.test, caCertificateRefs: [{group: "", kind: ConfigMap, name: ours}]`
	secret := ours.client("client", "gateway known")
	w := start(t, map[string]string{
		"ca.yaml":     configMap("ours", ours),
		"client.yaml": secret,
		"all.yaml": service("asks", "http", one.port, ready) + policy("asks", valid) + route("asks", "asks") +
			service("demands", "http", two.port, ready) + policy("demands", valid) + route("demands", "demands") +
			service("plain", "http", plain.port, ready) + route("plain", "plain"),
	})
	for range 5 { // connections of one must not serve the other
		if got := w.answers(otherPort, "asks", 200); got.Client != "gateway known" {
			t.Fatalf("Gateway known showed %q", got.Client)
		}
		if got := w.answers(port, "asks", 200); got.Client != "" {
			t.Fatalf("Gateway web showed %q", got.Client)
		}
	}
	w.answers(otherPort, "demands", 200)
	w.answers(port, "demands", 503)
	w.answers(otherPort, "plain", 200)

	w.write("client.yaml", ours.client("client", "renewed"))
	w.eventually("new connections show the new certificate", func() (bool, string) {
		_, got := w.ask(otherPort, "asks", "/close")
		return got.Client == "renewed", got.Client
	})

	w.remove("client.yaml")
	w.answers(otherPort, "asks", 500)
	w.answers(otherPort, "plain", 200)
	w.answers(port, "asks", 200)
	w.says("gateway", "known", "InvalidClientCertificateRef")
	w.says("httproute", "asks", "InvalidClientCertificateRef")
	w.write("client.yaml", secret)
	if got := w.answers(otherPort, "asks", 200); got.Client != "gateway known" {
		t.Errorf("Gateway known showed %q", got.Client)
	}
}
