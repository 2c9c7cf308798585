//go:build cluster

package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	secureHost = "secure.example.com"
	editedHost = "edited.example.com"
	laterHost  = "later.example.com"
)

const secureGateway = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: default}
spec:
  gatewayClassName: coxswain
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: pair}]}}
`

// refusedRoute is one that our validation takes, and that an Envoy does not whose bound for
// the programs of regular expressions is lower than the one it was given: it stands for
// every mistake that gets past our validation.
const refusedRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: edited, namespace: default}
spec:
  parentRefs: [{name: web}]
  hostnames: [edited.example.com]
  rules:
  - matches: [{path: {type: RegularExpression, value: "/[a-z]{600}"}}]
    backendRefs: [{name: shop, port: 80}]
`

var regexBound = regexp.MustCompile(`("re2\.max_program_size\.error_level":\s*)[0-9]+`)

// pair is a certificate and its key, PEM, and the certificate as an authority.
func pair(t *testing.T, name string) (cert, key []byte, pool *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), pool
}

func secret(cert, key []byte) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: pair, namespace: default}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key))
}

// secure is the status code of a request over TLS to who proves to be the host, 0 if there is no answer.
func (r *rig) secure(ctx context.Context, port int, roots *x509.CertPool) int {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", r.at(port))
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+secureHost+"/", http.NoBody)
	if err != nil {
		return 0
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// left is what a controller leaves to the next under a name and a key; empty: nothing.
func (r *rig) left(ctx context.Context, name, key string) string {
	m, err := r.core.ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return m.Data[key] + string(m.BinaryData[key])
}

func TestWhatIsHeldOutlivesTheController(t *testing.T) {
	r := newRig(t)
	r.change = func(bootstrap []byte) []byte {
		changed := regexBound.ReplaceAll(bootstrap, []byte("${1}300"))
		if bytes.Equal(changed, bootstrap) {
			r.Fatalf("the bootstrap has no bound for regular expressions:\n%s", bootstrap)
		}
		return changed
	}
	cert, key, roots := pair(t, secureHost)
	_, otherKey, _ := pair(t, secureHost)
	r.kubectl(objects+"---"+slice(r.backend.Listener.Addr().String()), "create", "-f", "-")
	r.kubectl(secureGateway+"---\n"+secret(cert, key)+"---"+route("shop", host)+"---"+route("secure", secureHost)+"---"+route("edited", editedHost), "apply", "-f", "-")
	controller := r.startController()
	stopProxy := r.startProxy("proxy-1")

	ports := map[string]int{}
	for _, p := range []string{"80", "443"} {
		r.eventually("port "+p, func(context.Context) bool {
			ports[p], _ = strconv.Atoi(r.jsonpath("service", namespace, "default-web-coxswain", "{.spec.ports[?(@.port=="+p+")].targetPort}"))
			return ports[p] > 0
		})
	}
	// served looks whether all that ever was is.
	served := func(ctx context.Context) map[string]int {
		out := map[string]int{secureHost + " by TLS": r.secure(ctx, ports["443"], roots)}
		for _, h := range []string{host, secureHost, editedHost} {
			out[h] = r.get(ctx, ports["80"], h)
		}
		maps.DeleteFunc(out, func(_ string, code int) bool { return code == http.StatusOK })
		return out
	}
	r.eventually("everything is served", func(ctx context.Context) bool { return len(served(ctx)) == 0 })

	// A Secret and a route turn bad.
	r.kubectl(secret(cert, otherKey), "apply", "-f", "-")
	r.kubectl(refusedRoute, "apply", "-f", "-")
	r.eventually("the Secret's last good version is kept", func(ctx context.Context) bool {
		return strings.Contains(r.left(ctx, "aether-last-good", "objects"), "Secret/default/pair\n")
	})
	r.eventually("the route's conviction is kept, and its last good version", func(ctx context.Context) bool {
		text := r.left(ctx, "aether-quarantine", "convictions.json")
		return strings.Contains(text, "HTTPRoute/default/edited") && strings.Contains(text, `"instead"`)
	})
	if sealed := r.left(t.Context(), "aether-last-good", "sealed"); sealed == "" || strings.Contains(sealed, "PRIVATE KEY") || strings.Contains(sealed, "tls.key") {
		t.Errorf("what is kept of it is %q, want something sealed", sealed)
	}

	// The controller is another one, first of the same mode, then one to which the CA is somebody else's.
	for _, mode := range []string{"auto", "external"} {
		var traffic sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		failed := map[string]int{}
		rounds := 0
		traffic.Go(func() { // ends with ctx
			for ctx.Err() == nil {
				for what, code := range served(context.WithoutCancel(ctx)) {
					failed[what+" "+strconv.Itoa(code)]++
				}
				rounds++
			}
		})
		end(controller)
		controller = r.startController("--discovery-ca-mode=" + mode)
		name := laterHost
		if mode == "external" {
			name = "last.example.com"
		}
		r.kubectl(route(strings.TrimSuffix(name, ".example.com"), name), "create", "-f", "-")
		r.eventually("a route that came after the restart", func(ctx context.Context) bool {
			return r.get(ctx, ports["80"], name) == http.StatusOK
		})
		stop()
		traffic.Wait()
		if len(failed) > 0 || rounds == 0 {
			t.Errorf("mode %s: in %d rounds these failed: %v", mode, rounds, failed)
		}
	}

	// A proxy that never had the good versions gets them from the controller.
	stopProxy()
	r.startProxy("proxy-1")
	r.eventually("a new proxy serves everything", func(ctx context.Context) bool { return len(served(ctx)) == 0 })

	// What is good again, or gone, is not kept.
	newCert, newKey, newRoots := pair(t, secureHost)
	r.kubectl(secret(newCert, newKey), "apply", "-f", "-")
	r.kubectl("", "delete", "httproute", "-n", "default", "edited")
	r.eventually("the new pair is served", func(ctx context.Context) bool { return r.secure(ctx, ports["443"], newRoots) == http.StatusOK })
	for _, name := range []string{"aether-last-good", "aether-quarantine"} {
		r.eventually("the end of ConfigMap "+name, func(context.Context) bool {
			return r.jsonpath("configmap", namespace, name, "{.metadata.name}") == ""
		})
	}
}
