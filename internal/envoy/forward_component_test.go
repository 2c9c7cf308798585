//go:build component

package envoy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/envoy"
)

// forwarded is the headers by which backends learn where a request came from.
var forwarded = []string{
	"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Prefix",
	"X-Forwarded-Client-Cert", "Forwarded", "X-Real-Ip", "X-Aether-Scope", "X-Envoy-External-Address",
	"X-Envoy-Original-Path", "X-Envoy-Decorator-Operation", "X-Envoy-Internal", "X-Envoy-Unheard-Of",
}

func told(a answer) map[string]string {
	got := map[string]string{}
	for _, name := range forwarded {
		if v := a.Seen.Header.Values(name); len(v) > 0 {
			got[name] = strings.Join(v, " / ")
		}
	}
	return got
}

// everything serves every host of a chain from one backend. The chain's name, bound port
// and address are filled in.
func everything(t *testing.T, r *rig, l envoy.Listener, chains ...envoy.Chain) uint32 {
	t.Helper()
	port := freePort(t)
	l.Name, l.Address, l.Port = fmt.Sprintf("ns/gw/%d", port), "127.0.0.1", port
	a := backend(t, "a", false)
	r.serve(t, append([]model{envoy.Runtime{}}, cluster(fmt.Sprintf("ns/a/%d", port), envoy.HTTP1, a)...)...)
	ready := fmt.Sprintf("ns/a/%d::127.0.0.1:%d::", port, a.Port)
	await(t, ready, func() bool { return strings.Contains(r.get("/clusters"), ready) }, func() string { return r.get("/clusters") })
	var models []model
	for i, c := range chains {
		if c.Name == "" {
			c.Name = fmt.Sprintf("%s/%d", l.Name, i)
		}
		models = append(models, scopes(c.Name, c.PerHost, []envoy.VirtualHost{
			{Host: "*", Routes: []envoy.Route{{Name: "ns/any/0/0", Backends: to(fmt.Sprintf("ns/a/%d", port))}}},
		})...)
		l.Chains = append(l.Chains, c)
	}
	r.serve(t, append(models, l)...)
	r.awaitListener(t, port)
	return port
}

func TestForwardingHeadersCannotBeForged(t *testing.T) {
	r := newRig(t)
	forgery := []string{
		"X-Forwarded-For: 6.6.6.6, 7.7.7.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: evil.example", "X-Forwarded-Port: 1",
		"X-Forwarded-Prefix: /evil", "Forwarded: for=6.6.6.6", "X-Real-IP: 6.6.6.6", "X-Forwarded-Client-Cert: URI=spiffe://evil",
		"X-Aether-Scope: other|*", "X-Envoy-External-Address: 6.6.6.6", "X-Envoy-Original-Path: /evil",
		"X-Envoy-Decorator-Operation: evil", "X-Envoy-Internal: true", "X-Envoy-Unheard-Of: evil",
	}
	own := map[string]string{"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": "a.example", "X-Forwarded-Port": "80"}
	for _, perHost := range []bool{false, true} {
		for name, tc := range map[string]struct {
			hops   uint32
			listen envoy.Listener
			send   []string
			want   map[string]string
		}{
			"nobody is trusted, nothing is said": {want: own},
			"nobody is trusted, all is forged":   {send: forgery, want: own},
			"one hop is trusted and says all of it": {hops: 1, send: append(forgery[8:], forgery[:4]...), want: map[string]string{
				"X-Forwarded-For": "6.6.6.6, 7.7.7.7,127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "evil.example", "X-Forwarded-Port": "1",
			}},
			"one hop is trusted and says nothing": {hops: 1, want: own},
			"headers of a peer whose PROXY header is not believed, nobody is trusted": {
				listen: envoy.Listener{Proxied: envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: []string{"192.0.2.0/24"}}}, send: forgery, want: own,
			},
		} {
			t.Run(fmt.Sprintf("%s, per host %v", name, perHost), func(t *testing.T) {
				port := everything(t, r, tc.listen, envoy.Chain{Port: 80, TrustedHops: tc.hops, PerHost: perHost})
				a := ask(t, port, append([]string{"GET / HTTP/1.1", "Host: a.example"}, tc.send...)...)
				if diff := cmp.Diff(tc.want, told(a)); a.Status != 200 || diff != "" {
					t.Errorf("status %d (-want +got):\n%s", a.Status, diff)
				}
			})
		}
	}
}

// proxyV2 is a version 2 header that says the connection comes from that IPv4 address.
func proxyV2(client string) string {
	var b bytes.Buffer
	b.WriteString("\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c")
	b.Write(net.ParseIP(client).To4())
	b.Write(net.ParseIP("10.9.9.9").To4())
	b.WriteString("\x10\x00\x00\x50")
	return b.String()
}

func TestPROXYHeadersAreTakenByModeAndPeer(t *testing.T) {
	r := newRig(t)
	const v1 = "PROXY TCP4 198.51.100.7 10.9.9.9 4711 80\r\n"
	nobody, us := []string{"192.0.2.0/24"}, []string{"192.0.2.0/24", "127.0.0.0/8"}
	const refused = ""
	for name, tc := range map[string]struct {
		proxied envoy.Proxied
		header  string
		want    string // X-Forwarded-For
	}{
		"off, none":                           {envoy.Proxied{}, "", "127.0.0.1"},
		"off, version 1":                      {envoy.Proxied{}, v1, refused},
		"off, version 2":                      {envoy.Proxied{}, proxyV2("198.51.100.8"), refused},
		"accepted of everyone, none":          {envoy.Proxied{Mode: envoy.ProxyAccept}, "", "127.0.0.1"},
		"accepted of everyone, version 1":     {envoy.Proxied{Mode: envoy.ProxyAccept}, v1, "198.51.100.7"},
		"accepted of everyone, version 2":     {envoy.Proxied{Mode: envoy.ProxyAccept}, proxyV2("198.51.100.8"), "198.51.100.8"},
		"accepted of us, none":                {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: us}, "", "127.0.0.1"},
		"accepted of us, version 1":           {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: us}, v1, "198.51.100.7"},
		"accepted of us, version 2":           {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: us}, proxyV2("198.51.100.8"), "198.51.100.8"},
		"accepted of others, none":            {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: nobody}, "", "127.0.0.1"},
		"accepted of others, version 1":       {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: nobody}, v1, "127.0.0.1"},
		"accepted of others, a trusted one":   {envoy.Proxied{Mode: envoy.ProxyAccept, Trusted: nobody}, proxyV2("192.0.2.1"), "127.0.0.1"},
		"required of everyone, none":          {envoy.Proxied{Mode: envoy.ProxyRequire}, "", refused},
		"required of everyone, version 1":     {envoy.Proxied{Mode: envoy.ProxyRequire}, v1, "198.51.100.7"},
		"required of us, version 2":           {envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: us}, proxyV2("198.51.100.8"), "198.51.100.8"},
		"required of us, none":                {envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: us}, "", refused},
		"required of others, none":            {envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: nobody}, "", refused},
		"required of others, version 1":       {envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: nobody}, v1, refused},
		"required of others, a trusted one's": {envoy.Proxied{Mode: envoy.ProxyRequire, Trusted: nobody}, proxyV2("192.0.2.1"), refused},
		"required, a header that is cut off":  {envoy.Proxied{Mode: envoy.ProxyRequire}, "PROXY TCP4 198.51.100.7 4711 80\r\n", refused},
	} {
		t.Run(name, func(t *testing.T) {
			port := everything(t, r, envoy.Listener{Proxied: tc.proxied}, envoy.Chain{Port: 80})
			conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, tc.header+"GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			got := refused
			if err == nil && resp.StatusCode == 200 {
				got = told(decode(t, resp))["X-Forwarded-For"]
			}
			if got != tc.want {
				t.Errorf("the backend was told %q, want %q (%v)", got, tc.want, err)
			}
		})
	}
}
