//go:build component

package backends_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"aether.io/aether/internal/test/keypair"
)

// seen is what a backend saw of a request.
type seen struct {
	Backend string
	Proto   string
	SNI     string
	Client  string // common name of the client's certificate
}

// server is a backend on 127.0.0.1.
type server struct {
	port     int
	requests atomic.Int64
	hold     chan struct{} // what requests for /hold wait for
}

// serve starts a server that speaks HTTP/1 or HTTP/2, over TLS if there is a configuration.
func serve(t *testing.T, name string, h2 bool, config *tls.Config) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{port: l.Addr().(*net.TCPAddr).Port, hold: make(chan struct{})}
	web := &http.Server{Protocols: new(http.Protocols), TLSConfig: config, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		s.requests.Add(1)
		if q.URL.Path == "/hold" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-s.hold
		}
		if q.URL.Path == "/close" { // the next request needs a new connection
			w.Header().Set("Connection", "close")
		}
		out := seen{Backend: name, Proto: q.Proto}
		if q.TLS != nil {
			out.SNI = q.TLS.ServerName
			for _, c := range q.TLS.PeerCertificates[:min(1, len(q.TLS.PeerCertificates))] {
				out.Client = c.Subject.CommonName
			}
		}
		_ = json.NewEncoder(w).Encode(out)
	})}
	web.Protocols.SetHTTP1(!h2)
	web.Protocols.SetHTTP2(h2 && config != nil)
	web.Protocols.SetUnencryptedHTTP2(h2 && config == nil)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if config != nil {
			_ = web.ServeTLS(l, "", "")
		} else {
			_ = web.Serve(l)
		}
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-done
	})
	return s
}

// authority signs certificates.
type authority struct {
	t *testing.T
	*keypair.Pair
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	return &authority{t, keypair.Authority(t, name, nil)}
}

// server is a configuration with a certificate of these names, hosts or URIs.
func (a *authority) server(names ...string) *tls.Config {
	a.t.Helper()
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "server"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, KeyUsage: x509.KeyUsageDigitalSignature}
	for _, n := range names {
		if u, err := url.Parse(n); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	return &tls.Config{Certificates: []tls.Certificate{*keypair.New(a.t, template, a.Pair).TLS()}, MinVersion: tls.VersionTLS12}
}

// client is a Secret with a client certificate.
func (a *authority) client(secret, name string) string {
	a.t.Helper()
	own := keypair.New(a.t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature}, a.Pair)
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n%s  tls.key: |\n%s",
		secret, indent(string(own.CertPEM())), indent(string(own.KeyPEM(a.t))))
}

// configMap holds the certificates of authorities.
func configMap(name string, list ...*authority) string {
	text := ""
	for _, a := range list {
		text += string(a.CertPEM())
	}
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata:\n  ca.crt: |\n%s", name, indent(text))
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n"
}

// policy is a BackendTLSPolicy of a Service's port; validation is its YAML.
func policy(service, validation string) string {
	return fmt.Sprintf(`---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: %[1]s}
spec:
  targetRefs: [{group: "", kind: Service, name: %[1]s, sectionName: web}]
  validation: {%[2]s}
`, service, validation)
}
