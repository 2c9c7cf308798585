//go:build component

package listeners_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/test/keypair"
)

// parameters pins how routes are cut into scopes, and adds what is given.
func parameters(cut, more string) string {
	return fmt.Sprintf("apiVersion: config.aether.io/v1\nkind: GatewayParameters\nmetadata: {name: own, namespace: infra}\nspec: {routeScopes: %s%s}\n", cut, more)
}

// gateway refers to those parameters.
func gateway(more, listeners string) string {
	return `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: infra}
spec:
  gatewayClassName: coxswain
  infrastructure: {parametersRef: {group: config.aether.io, kind: GatewayParameters, name: own}}
` + more + "  listeners:\n" + listeners
}

func bothCuts(t *testing.T, f func(t *testing.T, cut string)) {
	for _, cut := range []string{"Single", "PerHost"} {
		t.Run(cut, func(t *testing.T) { f(t, cut) })
	}
}

// What the text of Listener.hostname says of connections that are used for other hosts.
func TestRequestsForHostsOfOtherListenersAreMisdirected(t *testing.T) {
	bothCuts(t, func(t *testing.T, cut string) {
		w := start(t, 443)
		root := issue(t, nil)
		w.apply(class, parameters(cut, ""), issue(t, root, "example.org", "*.example.org").secret("infra", "cert"), serve(t, "one"), serve(t, "two"), serve(t, "wild"), serve(t, "four"),
			gateway("", `  - {name: any, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: second, port: 443, protocol: HTTPS, hostname: second-example.org, tls: {certificateRefs: [{name: cert}]}}
  - {name: wild, port: 443, protocol: HTTPS, hostname: "*.wildcard.org", tls: {certificateRefs: [{name: cert}]}}
  - {name: fourth, port: 443, protocol: HTTPS, hostname: fourth.wildcard.org, tls: {certificateRefs: [{name: cert}]}}
`),
			route("infra", "one", "name: web, sectionName: any", "example.org", "one"),
			route("infra", "two", "name: web, sectionName: second", "", "two"),
			route("infra", "wild", "name: web, sectionName: wild", "", "wild"),
			route("infra", "four", "name: web, sectionName: fourth", "", "four"))
		for _, tc := range []struct{ sni, host, want string }{
			{"example.org", "example.org", "one"},
			{"example.org", "second-example.org", "421"},
			{"example.org", "unknown-example.org", "404"},
			{"second-example.org", "second-example.org", "two"},
			{"second-example.org", "example.org", "421"},
			{"second-example.org", "unknown-example.org", "421"},
			{"third.wildcard.org", "third.wildcard.org", "wild"},
			{"third.wildcard.org", "fifth.wildcard.org", "wild"},
			{"third.wildcard.org", "fourth.wildcard.org", "421"},
			{"third.wildcard.org", "Fourth.Wildcard.org:443", "421"},
			{"third.wildcard.org", "second-example.org", "421"},
			{"third.wildcard.org", "unknown-example.org", "421"},
			{"fourth.wildcard.org", "fourth.wildcard.org", "four"},
			{"fourth.wildcard.org", "fifth.wildcard.org", "421"},
			{"unknown-example.org", "example.org", "one"},
			{"unknown-example.org", "unknown-example.org", "404"},
		} {
			c := w.client(443, &tls.Config{ServerName: tc.sni, InsecureSkipVerify: true})
			if got, _, err := answer(c, tc.host); got != tc.want {
				t.Errorf("%s on a connection for %s: got %q (%v), want %q", tc.host, tc.sni, got, err, tc.want)
			}
		}
	})
}

// load asks again and again, over a connection that is kept and over new ones, until it
// is told to stop, and counts what is not as wanted.
func (w *world) load(port uint32, config func() *tls.Config, host, want string) (stop func()) {
	var failed, sent atomic.Int64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, fresh := range []bool{false, true} {
		wg.Go(func() {
			c := w.client(port, config())
			for {
				select {
				case <-done:
					return
				default:
				}
				if fresh {
					c.CloseIdleConnections()
					c = w.client(port, config())
				}
				if got, _, err := answer(c, host); got != want {
					failed.Add(1)
					w.t.Logf("got %q, %v", got, err)
				}
				sent.Add(1)
			}
		})
	}
	return func() {
		w.t.Helper()
		at := sent.Load()
		w.eventually("more requests", "yes", func() (string, error) {
			if sent.Load() > at+10 {
				return "yes", nil
			}
			return fmt.Sprint(sent.Load()), nil
		})
		close(done)
		wg.Wait()
		if failed.Load() > 0 {
			w.t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
		}
	}
}

func TestCertificatesRotateBreakAndAreRevokedUnderLoad(t *testing.T) {
	w := start(t, 443)
	root := issue(t, nil)
	const grant = `apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: certs, namespace: vault}
spec:
  from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: infra}]
  to: [{group: "", kind: Secret}]
`
	w.apply(class, parameters("Auto", ""), grant, serve(t, "a"),
		issue(t, root, "a.example").secret("infra", "a"), issue(t, root, "b.example").secret("vault", "b"), issue(t, root, "c.example").secret("infra", "c"),
		gateway("", `  - {name: several, port: 443, protocol: HTTPS, hostname: "*.example", tls: {certificateRefs: [{name: a}, {name: b, namespace: vault}, {name: c}]}}
  - {name: steady, port: 443, protocol: HTTPS, hostname: steady.test, tls: {certificateRefs: [{name: a}]}}
`), route("infra", "a", "name: web", "", "a"))
	trusted := func(host string) *tls.Config { return &tls.Config{RootCAs: root.Pool(), ServerName: host} }
	stop := w.load(443, func() *tls.Config { return trusted("a.example") }, "a.example", "a")

	for range 5 {
		next := issue(t, root, "b.example")
		w.apply(next.secret("vault", "b"))
		w.eventually("the next certificate", next.Cert.SerialNumber.String(), func() (string, error) { return w.shown(443, trusted("b.example")) })
	}
	key := object.Key{Kind: object.Gateway, Namespace: "infra", Name: "web"}
	resolved := func(section string) string {
		for _, l := range w.statuses[key].Value.(*gatewayv1.GatewayStatus).Listeners {
			for _, c := range l.Conditions {
				if string(l.Name) == section && c.Type == "ResolvedRefs" {
					return string(c.Status) + " " + c.Reason
				}
			}
		}
		return "nothing"
	}
	for what, step := range map[string]struct {
		breaks, heals func()
		reason        string
		served        string // what b.example is answered with
	}{
		"a certificate that does not match its key": {
			func() {
				p, q := issue(t, root, "b.example"), issue(t, root, "b.example")
				w.apply((&pair{&keypair.Pair{Cert: p.Cert, Key: q.Key}}).secret("vault", "b"))
			},
			func() { w.apply(issue(t, root, "b.example").secret("vault", "b")) }, "InvalidCertificateRef", "a",
		},
		"a certificate that is gone": {
			func() { w.remove(object.Key{Kind: object.Secret, Namespace: "vault", Name: "b"}) },
			func() { w.apply(issue(t, root, "b.example").secret("vault", "b")) }, "InvalidCertificateRef", "an error",
		},
		"a grant that is gone": {
			func() { w.remove(object.Key{Kind: object.ReferenceGrant, Namespace: "vault", Name: "certs"}) },
			func() { w.apply(grant) }, "RefNotPermitted", "an error",
		},
	} {
		step.breaks()
		if got := resolved("several"); got != "False "+step.reason {
			t.Errorf("%s: ResolvedRefs is %s", what, got)
		}
		if got := resolved("steady"); got != "True ResolvedRefs" {
			t.Errorf("%s: ResolvedRefs of the other listener is %s", what, got)
		}
		w.eventually(what+": b.example", step.served, func() (string, error) {
			got, _, err := answer(w.client(443, trusted("b.example")), "b.example")
			return got, err
		})
		if _, err := w.shown(443, trusted("c.example")); err != nil {
			t.Errorf("%s: c.example, too: %v", what, err)
		}
		step.heals()
		if got := resolved("several"); got != "True ResolvedRefs" {
			t.Errorf("%s, healed: ResolvedRefs is %s", what, got)
		}
		w.eventually(what+", healed", "a", func() (string, error) {
			got, _, err := answer(w.client(443, trusted("b.example")), "b.example")
			return got, err
		})
	}
	stop()
}

func TestClientsAreVerifiedByPort(t *testing.T) {
	w := start(t, 443, 444, 445, 446, 80)
	root, mine, theirs := issue(t, nil), issue(t, nil), issue(t, nil)
	w.apply(class, parameters("Auto", ""), serve(t, "a"), issue(t, root, "a.example").secret("infra", "cert"),
		mine.configMap("infra", "ca"), theirs.configMap("infra", "theirs"),
		gateway(`  tls:
    frontend:
      default: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}
      perPort:
      - {port: 444, tls: {validation: {mode: AllowInsecureFallback, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}}}
      - {port: 445, tls: {}}
      - {port: 446, tls: {validation: {caCertificateRefs: [{group: "", kind: ConfigMap, name: nowhere}]}}}
`, `  - {name: required, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: optional, port: 444, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: none, port: 445, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: broken, port: 446, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}
  - {name: plain, port: 80, protocol: HTTP}
`), route("infra", "a", "name: web", "", "a"))
	ask := func(port uint32, client *pair) string {
		config := &tls.Config{RootCAs: root.Pool(), ServerName: "a.example"}
		if client != nil {
			config.Certificates = client.client()
		}
		got, _, err := answer(w.client(port, config), "a.example")
		if err != nil {
			return "refused"
		}
		return got
	}
	good, foreign := issue(t, mine), issue(t, theirs)
	for _, tc := range []struct {
		port                uint32
		good, foreign, none string
	}{
		{443, "a", "refused", "refused"}, {444, "a", "a", "a"}, {445, "a", "a", "a"}, {446, "refused", "refused", "refused"},
	} {
		if g, f, n := ask(tc.port, good), ask(tc.port, foreign), ask(tc.port, nil); g != tc.good || f != tc.foreign || n != tc.none {
			t.Errorf("port %d: of its authority %s, of another %s, none %s", tc.port, g, f, n)
		}
	}
	if got, _, _ := answer(w.client(80, nil), "a.example"); got != "a" {
		t.Errorf("a plain listener answers %q", got)
	}
	// Another authority takes effect without a listener update; without any, nobody is served.
	w.apply(theirs.configMap("infra", "ca"))
	w.eventually("the other authority", "a refused", func() (string, error) { return ask(443, foreign) + " " + ask(443, good), nil })
	w.remove(object.Key{Kind: object.ConfigMap, Namespace: "infra", Name: "ca"})
	w.eventually("no authority", "refused refused refused", func() (string, error) {
		return ask(443, foreign) + " " + ask(443, good) + " " + ask(443, nil), nil
	})
	w.apply(mine.configMap("infra", "ca"))
	w.eventually("an authority again", "a", func() (string, error) { return ask(443, good), nil })
}

// A neighbour on the port brings certificates that Go reads and Envoy does not load. Envoy
// would refuse every later change of the listener for one of them.
func TestANeighboursCertificateHoldsNobodyBack(t *testing.T) {
	w := start(t, 443)
	root := issue(t, nil)
	set := func(i int) string {
		return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: n%[1]d, namespace: apps}\nspec: {parentRef: {name: web, namespace: infra}, listeners: [{name: https, port: 443, protocol: HTTPS, hostname: n%[1]d.example, tls: {certificateRefs: [{name: n%[1]d}]}}]}\n", i)
	}
	own := func(host string) string {
		return gateway("  allowedListeners: {namespaces: {from: All}}\n", fmt.Sprintf("  - {name: https, port: 443, protocol: HTTPS, hostname: %s, tls: {certificateRefs: [{name: cert}]}}\n", host))
	}
	w.apply(class, parameters("Auto", ""), serve(t, "a"), issue(t, root, "a.example", "b.example").secret("infra", "cert"), own("a.example"), route("infra", "a", "name: web", "", "a"))
	odd := map[string]func(*x509.Certificate){
		"a stapled response is a must": func(c *x509.Certificate) {
			c.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}, Value: []byte{0x30, 3, 2, 1, 5}}}
		},
		"a key that may not sign": func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyAgreement },
		"no common name": func(c *x509.Certificate) {
			c.RawSubject = []byte{0x30, 11, 0x31, 9, 0x30, 7, 6, 3, 0x55, 4, 3, 0x0c, 0}
		},
		"a name that is none": func(c *x509.Certificate) { c.Subject.CommonName = "\uffff" },
	}
	for i, what := range slices.Sorted(maps.Keys(odd)) {
		w.apply(issueOdd(t, root, odd[what], fmt.Sprintf("n%d.example", i)).secret("apps", fmt.Sprintf("n%d", i)), set(i))
		for _, l := range w.statuses[object.Key{Kind: object.ListenerSet, Namespace: "apps", Name: fmt.Sprintf("n%d", i)}].Value.(*gatewayv1.ListenerSetStatus).Listeners {
			if c := l.Conditions[2]; c.Reason != string(gatewayv1.ListenerReasonInvalidCertificateRef) {
				t.Errorf("%s: %s is %s %s", what, c.Type, c.Status, c.Reason)
			}
		}
		for _, host := range []string{"b.example", "a.example"} { // the listener still changes
			w.apply(own(host))
			w.eventually(what+": "+host, "a", func() (string, error) {
				got, _, err := answer(w.client(443, &tls.Config{RootCAs: root.Pool(), ServerName: host}), host)
				return got, err
			})
		}
	}
}

func TestListenerSetsComeGoAndTakeOver(t *testing.T) {
	bothCuts(t, func(t *testing.T, cut string) {
		w := start(t, 80, 443)
		root := issue(t, nil)
		set := func(name, listeners string) string {
			return "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: " + name + ", namespace: apps}\nspec:\n  parentRef: {name: web, namespace: infra}\n  listeners:\n" + listeners
		}
		namespace := func(team string) string {
			return "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps, labels: {team: " + team + "}}\n"
		}
		w.apply(class, parameters(cut, ""), serve(t, "gw"), serve(t, "old"), serve(t, "new"), namespace("red"),
			issue(t, root, "gw.example").secret("infra", "cert"), issue(t, root, "old.example").secret("apps", "old"), issue(t, root, "*.example").secret("apps", "wild"),
			gateway("  allowedListeners: {namespaces: {from: Selector, selector: {matchLabels: {team: red}}}}\n", `  - {name: http, port: 80, protocol: HTTP, hostname: gw.example}
  - {name: https, port: 443, protocol: HTTPS, hostname: gw.example, tls: {certificateRefs: [{name: cert}]}}
`),
			route("infra", "gw", "name: web", "", "gw"),
			set("old", `  - {name: http, port: 80, protocol: HTTP, hostname: old.example}
  - {name: https, port: 443, protocol: HTTPS, hostname: old.example, tls: {certificateRefs: [{name: old}]}}
`),
			set("new", `  - {name: http, port: 80, protocol: HTTP, hostname: old.example}
  - {name: https, port: 443, protocol: HTTPS, hostname: "*.example", tls: {certificateRefs: [{name: wild}]}}
`),
			route("apps", "old", "kind: ListenerSet, name: old", "", "old"),
			route("apps", "new", "kind: ListenerSet, name: new", "", "new"))
		plain := func(host string) func() (string, error) {
			return func() (string, error) { got, _, err := answer(w.client(80, nil), host); return got, err }
		}
		secure := func(sni, host string) func() (string, error) {
			return func() (string, error) {
				got, _, err := answer(w.client(443, &tls.Config{ServerName: sni, RootCAs: root.Pool()}), host)
				return got, err
			}
		}
		stop := w.load(443, func() *tls.Config { return &tls.Config{ServerName: "gw.example", RootCAs: root.Pool()} }, "gw.example", "gw")
		all := func(when string, want map[string]string) {
			t.Helper()
			for what, see := range map[string]func() (string, error){
				"gw": plain("gw.example"), "old": plain("old.example"), "gw by TLS": secure("gw.example", "gw.example"),
				"old by TLS": secure("old.example", "old.example"), "wild by TLS": secure("x.example", "x.example"), "old on wild": secure("x.example", "old.example"),
			} {
				w.eventually(when+": "+what, want[what], see)
			}
		}
		all("both", map[string]string{"gw": "gw", "old": "old", "gw by TLS": "gw", "old by TLS": "old", "wild by TLS": "new", "old on wild": "421"})
		w.remove(object.Key{Kind: object.ListenerSet, Namespace: "apps", Name: "old"})
		all("the older one gone", map[string]string{"gw": "gw", "old": "new", "gw by TLS": "gw", "old by TLS": "new", "wild by TLS": "new", "old on wild": "new"})
		w.apply(namespace("blue"))
		all("none allowed", map[string]string{"gw": "gw", "old": "404", "gw by TLS": "gw", "old by TLS": "an error", "wild by TLS": "an error", "old on wild": "an error"})
		w.apply(namespace("red"))
		all("allowed again", map[string]string{"gw": "gw", "old": "new", "gw by TLS": "gw", "old by TLS": "new", "wild by TLS": "new", "old on wild": "new"})
		stop()
	})
}

func TestRoutesAreAllowedByNamespacesAsTheyChange(t *testing.T) {
	bothCuts(t, func(t *testing.T, cut string) {
		w := start(t, 80)
		labels := func(text string) string {
			return "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps, labels: {" + text + "}}\n"
		}
		w.apply(class, parameters(cut, ""), serve(t, "a"), gateway("", `  - name: selected
    port: 80
    protocol: HTTP
    hostname: "*.selected.example"
    allowedRoutes: {namespaces: {from: Selector, selector: {matchExpressions: [{key: team, operator: In, values: [red, green]}, {key: closed, operator: DoesNotExist}]}}}
  - {name: same, port: 80, protocol: HTTP, hostname: "*.same.example"}
  - {name: all, port: 80, protocol: HTTP, hostname: "*.all.example", allowedRoutes: {namespaces: {from: All}}}
  - {name: by-name, port: 80, protocol: HTTP, hostname: "*.by-name.example", allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {kubernetes.io/metadata.name: apps}}}}}
`), route("apps", "a", "name: web, namespace: infra", "", "a"))
		for _, step := range []struct{ labels, selected string }{
			{"", "404"}, {"team: red", "a"}, {"team: blue", "404"}, {"team: green", "a"}, {"team: green, closed: now", "404"}, {"team: red", "a"},
		} {
			if step.labels != "" {
				w.apply(labels(step.labels))
			}
			for host, want := range map[string]string{"x.selected.example": step.selected, "x.same.example": "404", "x.all.example": "a", "x.by-name.example": "a"} {
				w.eventually(step.labels+": "+host, want, func() (string, error) { got, _, err := answer(w.client(80, nil), host); return got, err })
			}
		}
		w.remove(object.Key{Kind: object.Namespace, Name: "apps"})
		w.eventually("the namespace is only referred to", "404", func() (string, error) {
			got, _, err := answer(w.client(80, nil), "x.selected.example")
			return got, err
		})
	})
}

// What GatewayParameters say of clients acts, and changes while connections live.
func TestTheClientPolicyActs(t *testing.T) {
	w := start(t, 80, 443)
	root := issue(t, nil)
	w.apply(class, parameters("Auto", ""), serve(t, "a"), issue(t, root, "a.example").secret("infra", "cert"),
		gateway("", "  - {name: http, port: 80, protocol: HTTP}\n  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: cert}]}}\n"),
		route("infra", "a", "name: web", "", "a"))
	// told is what a backend is told of a client that writes this before its request.
	told := func(before, forwarded string) func() (string, error) {
		return func() (string, error) {
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", 80+w.offset))
			if err != nil {
				return "", err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			if forwarded != "" {
				forwarded = "X-Forwarded-For: " + forwarded + "\r\n"
			}
			_, _ = io.WriteString(conn, before+"GET / HTTP/1.1\r\nHost: a.example\r\n"+forwarded+"Connection: close\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				return "", err
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return resp.Status, nil
			}
			return resp.Header.Get("X-Told"), nil
		}
	}
	const header = "PROXY TCP4 198.51.100.7 10.9.9.9 4711 80\r\n"
	w.eventually("by default a forged address is dropped", "127.0.0.1", told("", "6.6.6.6"))
	w.eventually("by default a PROXY header is no request", "400 Bad Request", told(header, ""))
	w.apply(parameters("Auto", ", clients: {trustedHops: 1}"))
	w.eventually("one trusted hop", "6.6.6.6,127.0.0.1", told("", "6.6.6.6"))
	w.apply(parameters("Auto", `, clients: {proxyProtocol: {mode: Require}}`))
	w.eventually("required and there", "198.51.100.7", told(header, ""))
	w.eventually("required and not there", "an error", told("", ""))
	w.apply(parameters("Auto", `, clients: {proxyProtocol: {mode: Require, trustedCIDRs: ["192.0.2.0/24"]}}`))
	w.eventually("required, and of a peer that is not trusted", "an error", told(header, ""))
	w.apply(parameters("Auto", `, clients: {proxyProtocol: {mode: Accept, trustedCIDRs: ["127.0.0.0/8"]}}`))
	w.eventually("accepted and there", "198.51.100.7", told(header, ""))
	w.eventually("accepted and not there", "127.0.0.1", told("", ""))
	w.apply(parameters("Auto", `, clients: {proxyProtocol: {mode: Accept, trustedCIDRs: ["192.0.2.0/24"]}}`))
	w.eventually("accepted, and of a peer that is not trusted", "127.0.0.1", told(header, "6.6.6.6"))

	w.apply(parameters("Auto", `, clients: {tls: {minVersion: "1.3"}}`))
	old := &tls.Config{RootCAs: root.Pool(), ServerName: "a.example", MaxVersion: tls.VersionTLS12}
	w.eventually("TLS 1.2 refused", "an error", func() (string, error) { return w.shown(443, old) })
	if _, err := w.shown(443, &tls.Config{RootCAs: root.Pool(), ServerName: "a.example"}); err != nil {
		t.Errorf("TLS 1.3: %v", err)
	}
	w.apply(parameters("Auto", `, clients: {connectionLimit: 2}`))
	held := func() (string, error) {
		var live []*http.Client
		for range 5 {
			c := w.client(80, nil)
			if got, _, err := answer(c, "a.example"); err != nil || got != "a" {
				break
			}
			live = append(live, c)
		}
		for _, c := range live {
			c.CloseIdleConnections()
		}
		return fmt.Sprint(len(live)), nil
	}
	w.eventually("no more than two connections", "2", held)
	w.apply(parameters("Auto", ""))
	w.eventually("any number again", "5", held)
}

// Equal objects again say nothing new, also of ListenerSets.
func TestNothingIsSaidAgain(t *testing.T) {
	w := start(t, 80)
	set := "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {name: set, namespace: infra}\nspec:\n  parentRef: {name: web}\n  listeners: [{name: http, port: 80, protocol: HTTP, hostname: b.example}]\n"
	w.apply(class, parameters("Auto", ""), gateway("  allowedListeners: {namespaces: {from: Same}}\n", "  - {name: http, port: 80, protocol: HTTP, hostname: a.example}\n"), set)
	key := object.Key{Kind: object.ListenerSet, Namespace: "infra", Name: "set"}
	v := w.statuses[key].Value.(*gatewayv1.ListenerSetStatus)
	if len(v.Conditions) != 2 || v.Conditions[0].Status != metav1.ConditionTrue {
		t.Fatalf("conditions %v", v.Conditions)
	}
	w.made = w.made.Add(-time.Second)
	clear(w.statuses)
	w.apply(set)
	if len(w.statuses) > 0 {
		t.Errorf("said again: %v", w.statuses)
	}
}
