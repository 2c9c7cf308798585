package webhook

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"aether.io/aether/internal/meshconfig"
	"aether.io/aether/internal/test/keypair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	patience = 20 * time.Second
	host     = "aether-controller-webhook.aether-system.svc"
)

// authority signs certificates for host.
type authority struct {
	testing.TB
	*keypair.Pair
}

func newAuthority(t testing.TB) authority {
	t.Helper()
	return authority{t, keypair.Authority(t, rand.Text(), nil)}
}

// issue makes a certificate for host.
func (a authority) issue(notAfter time.Time) *tls.Certificate {
	a.Helper()
	return keypair.New(a, &x509.Certificate{
		NotAfter: notAfter, DNSNames: []string{host},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.Pair).TLS()
}

// pool is of this authority and others.
func (a authority) pool(others ...authority) *x509.CertPool {
	p := a.Pool()
	for _, one := range others {
		p.AddCert(one.Cert)
	}
	return p
}

// write puts a certificate in a directory as its two files.
func write(t testing.TB, dir string, c *tls.Certificate) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{KeyFile: {Type: "PRIVATE KEY", Bytes: der}, CertFile: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fixed is Certificates of one certificate, or an error.
type fixed struct {
	cert *tls.Certificate
	err  error
}

func (f *fixed) Certificate() (*tls.Certificate, error) { return f.cert, f.err }

// rig is a server that runs until the test ends.
type rig struct {
	testing.TB
	*Server
	address string
	client  *http.Client
	metrics *prometheus.Registry
	stop    func()
}

func start(t testing.TB, c Config) *rig {
	t.Helper()
	return startLingering(t, c, 0)
}

func startLingering(t testing.TB, c Config, linger time.Duration) *rig {
	t.Helper()
	a := newAuthority(t)
	if c.Certificates == nil {
		c.Certificates = &fixed{cert: a.issue(time.Now().Add(time.Hour))}
	}
	c.Address, c.ReleaseNamespace = "127.0.0.1:0", "aether-system"
	r := &rig{TB: t, metrics: prometheus.NewRegistry()}
	c.Registerer = r.metrics
	var err error
	if r.Server, err = New(c); err != nil {
		t.Fatal(err)
	}
	r.linger = linger
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", c.Address)
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.serve(ctx, l) }()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.pool(), ServerName: host, MinVersion: tls.VersionTLS12}}
	r.client = &http.Client{Transport: transport, Timeout: patience}
	ended := false
	r.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("serve: %v", err)
		}
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		r.stop()
	})
	return r
}

// post sends a body and returns the answer's status and text.
func (r *rig) post(body io.Reader) (int, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "https://"+r.address+Path, body)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return r.send(req)
}

func (r *rig) send(req *http.Request) (int, string) {
	r.Helper()
	resp, err := r.client.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// ask has a review answered.
func (r *rig) ask(review *admissionv1.AdmissionReview) *admissionv1.AdmissionResponse {
	r.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		r.Fatal(err)
	}
	code, text := r.post(bytes.NewReader(body))
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal([]byte(text), &out); code != http.StatusOK || err != nil {
		r.Fatalf("%d %s (%v)", code, text, err)
	}
	if out.Kind != "AdmissionReview" || out.APIVersion != "admission.k8s.io/v1" || out.Response == nil || out.Response.UID != review.Request.UID {
		r.Fatalf("answered %s", text)
	}
	return out.Response
}

// count is of reviews with a result.
func (r *rig) count(result string) float64 {
	r.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "aether_webhook_requests_total" && m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
	}
	r.Fatalf("there is no metric of result %q", result)
	return 0
}

// object is a MeshConfig as an API server sends it.
func object(namespace, name, spec string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":%q,"namespace":%q,"managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}]},"spec":%s}`, name, namespace, spec)
}

// review asks about an object, and what it was before.
func review(op admissionv1.Operation, object, old []byte) *admissionv1.AdmissionReview {
	return &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "7c1d", Kind: metav1.GroupVersionKind{Group: "config.aether.io", Version: "v1", Kind: "MeshConfig"},
			Namespace: "shop", Name: "default", Operation: op,
			Object: runtime.RawExtension{Raw: object}, OldObject: runtime.RawExtension{Raw: old},
		},
	}
}

// on is a system in which every setting has an effect.
var on = meshconfig.System{OTelEnabled: true, OTelLogs: true, TraceExport: true, OTelEndpoint: "collector:4317", TraceSampleRate: 0.1}
