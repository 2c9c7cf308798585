//go:build component

package envoy_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"testing"

	"aether.io/aether/internal/envoy"
)

func TestHTTPSPicksTheChainByServerName(t *testing.T) {
	r := newRig(t)
	port := freePort(t)
	pool := x509.NewCertPool()
	models := []model{envoy.Runtime{}}
	models = append(models, cluster("ns/a/80", envoy.HTTP1, backend(t, "a", false))...)
	listener := envoy.Listener{Name: "ns/gw/443", Address: "127.0.0.1", Port: port}
	add := func(table string, key crypto.Signer, sni []string, perHost bool, host string) {
		secret := newSecret(t, "ns/"+host, key, host)
		pool.AppendCertsFromPEM(secret.Chain)
		models = append(models, secret)
		models = append(models, scopes(table, perHost, []envoy.VirtualHost{
			{Host: host, Routes: []envoy.Route{{Name: "ns/r/0/0", Path: prefix("/" + table[len(table)-1:]), Backends: to("ns/a/80")}}},
		})...)
		listener.Chains = append(listener.Chains, envoy.Chain{Name: table, SNI: sni, Secrets: []string{secret.Name}, PerHost: perHost})
	}
	p256, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	p384, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
	_, edKey, _ := ed25519.GenerateKey(rand.Reader)
	add("ns/gw/a", p256, []string{"a.example"}, true, "a.example")
	add("ns/gw/b", rsaKey, []string{"*.b.example"}, false, "*.b.example")
	add("ns/gw/c", p384, []string{"c.example"}, false, "c.example")
	add("ns/gw/d", edKey, []string{"d.example"}, false, "d.example")
	listener.Chains = append(listener.Chains, envoy.Chain{Name: "ns/gw/plain"})
	models = append(models, scopes("ns/gw/plain", false, []envoy.VirtualHost{
		{Host: "*", Routes: []envoy.Route{{Name: "ns/plain/0/0", Backends: to("ns/a/80")}}},
	})...)
	r.serve(t, append(models, listener)...)
	r.awaitListener(t, port)

	for host, path := range map[string]string{"a.example": "/a", "x.b.example": "/b", "c.example": "/c", "d.example": "/d"} {
		for proto, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
			client := clientFor(port, &tls.Config{RootCAs: pool, ServerName: host}, h2)
			resp, err := client.Get(fmt.Sprintf("https://%s:%d%s", host, port, path))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 200 || resp.Proto != proto || resp.TLS.Version != tls.VersionTLS13 {
				t.Errorf("%s: got %d by %s, TLS %x", host, resp.StatusCode, resp.Proto, resp.TLS.Version)
			}
			client.CloseIdleConnections()
		}
	}
	if a := ask(t, port, "GET / HTTP/1.1", "Host: plain.example"); a.Status != 200 {
		t.Errorf("a plain connection got %d", a.Status)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	for name, config := range map[string]*tls.Config{
		"an unknown server name": {RootCAs: pool, ServerName: "nope.example", InsecureSkipVerify: true},
		"TLS 1.1":                {RootCAs: pool, ServerName: "a.example", MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10},
	} {
		if conn, err := tls.Dial("tcp", address, config); err == nil {
			_ = conn.Close()
			t.Errorf("%s: the handshake succeeded", name)
		}
	}
}

// clientFor is an HTTP client that connects to the port whatever the host.
func clientFor(port uint32, config *tls.Config, h2 bool) *http.Client {
	p := new(http.Protocols)
	p.SetHTTP1(!h2)
	p.SetHTTP2(h2)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: config,
		Protocols:       p,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		},
	}}
}
