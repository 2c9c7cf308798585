//go:build cluster

package kubernetes_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"aether.io/aether/internal/test/collector"
)

// exporting has a controller export all that it has to a collector.
func exporting(c *collector.Collector) []string {
	return []string{"--otel-enabled", "--logs-enabled", "--trace-export", "--trace-sample-rate=1", fmt.Sprintf("--otlp-endpoint=%s:%d", c.Host, c.Port)}
}

// told is every attribute that a review's span may have: nothing of what was asked, and nothing of who may.
var told = []string{
	"http.request.method", "http.request.body.size", "http.response.status_code", "http.response.body.size", "url.scheme", "url.path",
	"server.address", "server.port", "client.address", "network.peer.address", "network.peer.port", "network.protocol.version", "user_agent.original",
}

// reviewSpans are those of reviews that a collector has.
func reviewSpans(a *admission, c *collector.Collector) (out []collector.Span) {
	a.Helper()
	for _, s := range c.Spans(a.T) {
		if s.Name == "admission review" {
			out = append(out, s)
		}
	}
	return out
}

// hidden is in an object's spec, and in what a caller has to show who it is.
const hidden = "nobody-is-to-read-this"

// reviewsAreSpans has the API server have a MeshConfig reviewed, and a caller that is traced another, at the port
// of a replica that exports to c. Each review is a span of its own, the second's a part of the caller's trace.
func (a *admission) reviewsAreSpans(c *collector.Collector, port int) {
	a.Helper()
	if err := a.write(a.Context(), `{"proxy": {"`+hidden+`": "`+hidden+`"}}`); err != nil {
		a.Fatal(err)
	}
	trace, parent := randomHex(16), randomHex(8)
	a.askTraced(port, "00-"+trace+"-"+parent+"-01")

	var direct, asked collector.Span
	a.eventually("both reviews are spans", func(context.Context) bool {
		for _, s := range reviewSpans(a, c) {
			switch {
			case s.TraceID == trace:
				direct = s
			case strings.HasPrefix(s.Attributes["user_agent.original"], "kube-apiserver"):
				asked = s
			}
		}
		return direct.Name != "" && asked.Name != ""
	})
	if direct.ParentID != parent {
		a.Errorf("the parent of the review that was traced is %q, want %s", direct.ParentID, parent)
	}
	if asked.ParentID != "" { // the API server traces nothing
		a.Errorf("the API server's review has the parent %s", asked.ParentID)
	}
	want := map[string]string{"http.request.method": http.MethodPost, "url.path": "/validate", "http.response.status_code": "200"}
	for _, s := range reviewSpans(a, c) {
		if s.Kind != collector.KindServer || s.Resource["service.name"] != controllerProgram || s.Resource["service.namespace"] != namespace {
			a.Errorf("a review's span is of kind %d, of %v", s.Kind, s.Resource)
		}
		for name, value := range want {
			if s.Attributes[name] != value {
				a.Errorf("%s of a review's span is %q, want %q", name, s.Attributes[name], value)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
			if !slices.Contains(told, name) {
				a.Errorf("a review's span tells %s: %s", name, s.Attributes[name])
			}
		}
	}
	if bytes.Contains(c.Raw(a.T), []byte(hidden)) {
		a.Error("what was exported tells what was reviewed, or what the caller showed")
	}
}

// askTraced asks for a review as a caller in a trace does.
func (a *admission) askTraced(port int, traceparent string) {
	a.Helper()
	body, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "traced", Kind: metav1.GroupVersionKind{Group: "config.aether.io", Version: "v1", Kind: "MeshConfig"}, Namespace: "default", Name: "default",
			Operation: admissionv1.Create,
			Object:    runtime.RawExtension{Raw: []byte(`{"apiVersion": "config.aether.io/v1", "kind": "MeshConfig", "metadata": {"name": "default"}, "spec": {"` + hidden + `": 1}}`)},
		},
	})
	if err != nil {
		a.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.config().Webhooks[0].ClientConfig.CABundle) {
		a.Fatal("the configuration has no authority")
	}
	client := &http.Client{Timeout: patience, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: webhookHost, MinVersion: tls.VersionTLS13}, DisableKeepAlives: true,
	}}
	req, err := http.NewRequestWithContext(a.Context(), http.MethodPost, "https://"+a.at(port)+"/validate?timeout=5s&"+hidden, bytes.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Traceparent": traceparent, "Baggage": "secret=" + hidden, "Authorization": "Bearer " + hidden, "Cookie": "session=" + hidden,
	} {
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		a.Fatal(err)
	}
	defer resp.Body.Close()
	var answer admissionv1.AdmissionReview
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || answer.Response == nil || !answer.Response.Allowed {
		a.Fatalf("the webhook answers %s, %+v (%v)", resp.Status, answer.Response, err)
	}
}

// randomHex is n random bytes.
func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
