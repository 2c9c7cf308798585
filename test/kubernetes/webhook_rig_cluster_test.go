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
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"aether.io/aether/test/cluster/build"
)

const (
	webhookName = "aether-controller-webhook"
	webhookHost = webhookName + "." + namespace + ".svc"
	hookConfig  = webhookName + "." + namespace
)

// admission is an API server that calls the webhook as the chart has it do, by the Service's
// name. The Service stands for a port of loopback.
type admission struct {
	*rig
	port     int // that the Service stands for
	hooks    admissionclient.ValidatingWebhookConfigurationInterface
	configs  dynamic.ResourceInterface
	warnings *warnings
}

// warnings are those of the last call.
type warnings struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer func() { w.list = nil }()
	return w.list
}

func newAdmission(t *testing.T) *admission {
	t.Helper()
	a := &admission{rig: newRig(t), warnings: &warnings{}}
	a.port = a.rig.port()
	hooks, err := admissionclient.NewForConfig(a.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	a.hooks = hooks.ValidatingWebhookConfigurations()
	config := rest.CopyConfig(a.server.Config)
	config.WarningHandler = a.warnings
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	a.configs = client.Resource(schema.GroupVersionResource{Group: "config.aether.io", Version: "v1", Resource: "meshconfigs"}).Namespace("default")
	a.kubectl("", "create", "namespace", namespace)
	a.kubectl(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {name: %s, namespace: %s}, spec: {type: ExternalName, externalName: %s}}", webhookName, namespace, a.address), "create", "-f", "-")
	return a
}

// in is the same in a test within the test.
func (a *admission) in(t *testing.T) *admission {
	r, out := *a.rig, *a
	r.T, out.rig = t, &r
	return &out
}

// render has Helm render the webhook's configuration and its Secret, which may be none.
func (a *admission) render(values ...string) (config *admissionregistrationv1.ValidatingWebhookConfiguration, secret *corev1.Secret) {
	a.Helper()
	root, err := build.Root(".")
	if err != nil {
		a.Fatal(err)
	}
	cache, err := build.Cache()
	if err != nil {
		a.Fatal(err)
	}
	helm, err := build.Helm(root).Find(cache)
	if err != nil {
		a.Fatal(err)
	}
	cmd := exec.CommandContext(a.Context(), helm, append([]string{"template", "aether", root + "/charts/aether", "--namespace", namespace}, values...)...)
	home := a.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		a.Fatalf("%v\n%s", err, stderr.String())
	}
	for doc := range strings.SplitSeq(string(out), "\n---\n") {
		var meta metav1.PartialObjectMetadata
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			a.Fatal(err)
		}
		var into any
		switch {
		case meta.Kind == "ValidatingWebhookConfiguration":
			config = &admissionregistrationv1.ValidatingWebhookConfiguration{}
			into = config
		case meta.Kind == "Secret" && meta.Name == webhookName:
			secret = &corev1.Secret{}
			into = secret
		default:
			continue
		}
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			a.Fatal(err)
		}
	}
	if config == nil {
		a.Fatal("the chart renders no ValidatingWebhookConfiguration")
	}
	port := int32(a.port)
	config.Webhooks[0].ClientConfig.Service.Port = &port
	return config, secret
}

// apply has a configuration applied as Helm does, which forces nothing.
func (a *admission) apply(config *admissionregistrationv1.ValidatingWebhookConfiguration) {
	a.Helper()
	text, err := yaml.Marshal(config)
	if err != nil {
		a.Fatal(err)
	}
	a.kubectl(string(text), "apply", "--server-side", "--field-manager=helm", "-f", "-")
}

func (a *admission) config() *admissionregistrationv1.ValidatingWebhookConfiguration {
	a.Helper()
	c, err := a.hooks.Get(a.Context(), hookConfig, metav1.GetOptions{})
	if err != nil {
		a.Fatal(err)
	}
	return c
}

// Specs of which the definition knows nothing that is wrong: only the webhook can refuse.
const (
	wrongSpec = `{"proxy": {"trace_sample_rate": 7, "access_log_success_sample_rate": 101}}`
	rightSpec = `{"proxy": {"accessLogsEnabled": true, "accessLogSuccessSampleRate": 7}}`
)

// write has the API server judge a MeshConfig, and store nothing.
func (a *admission) write(ctx context.Context, spec string) error {
	var o unstructured.Unstructured
	if err := yaml.Unmarshal([]byte(`{"apiVersion": "config.aether.io/v1", "kind": "MeshConfig", "metadata": {"name": "default", "namespace": "default"}, "spec": `+spec+`}`), &o.Object); err != nil {
		return err
	}
	_, err := a.configs.Create(ctx, &o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

var errPassed = errors.New("a wrong MeshConfig was not refused")

// refuses says why it cannot be relied upon that wrong MeshConfigs are refused at the API
// server, with the path of each violation; nil: it can.
func (a *admission) refuses(ctx context.Context) error {
	err := a.write(ctx, wrongSpec)
	switch {
	case err == nil:
		return errPassed
	case !strings.Contains(err.Error(), `admission webhook "meshconfig.config.aether.io" denied the request: spec.proxy.accessLogSuccessSampleRate: must be`),
		!strings.Contains(err.Error(), "; spec.proxy.traceSampleRate: must be"):
		return fmt.Errorf("it was refused by something else: %w", err)
	}
	return nil
}

// underWrites has right and wrong MeshConfigs written all along while f runs: each of the first
// is to pass, none of the others.
func (a *admission) underWrites(f func()) {
	a.Helper()
	ctx, stop := context.WithCancel(a.Context())
	defer stop()
	var writers sync.WaitGroup
	var written atomic.Int64
	for range 2 {
		writers.Go(func() { // ends with f
			for ctx.Err() == nil {
				if err := a.refuses(context.WithoutCancel(ctx)); err != nil {
					a.Errorf("after %d writes: %v", written.Load(), err)
					return
				}
				if err := a.write(context.WithoutCancel(ctx), rightSpec); err != nil {
					a.Errorf("after %d writes a right MeshConfig is refused: %v", written.Load(), err)
					return
				}
				written.Add(2)
			}
		})
	}
	f()
	before := written.Load()
	a.eventually("writes go on", func(context.Context) bool { return written.Load() > before+4 || a.Failed() })
	stop()
	writers.Wait()
}

// serves is the certificate that a port shows, nil if none.
func (a *admission) serves(ctx context.Context, port int) *x509.Certificate {
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
	c, err := d.DialContext(ctx, "tcp", a.at(port))
	if err != nil {
		return nil
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// material makes an authority, PEM, and a certificate of it for the webhook.
func (a *admission) material() (caCert, caKey, cert, key []byte) {
	a.Helper()
	issue := func(tmpl, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			a.Fatal(err)
		}
		if parent == nil {
			parent, signer = tmpl, own
		}
		der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, own.Public(), signer)
		if err != nil {
			a.Fatal(err)
		}
		c, err := x509.ParseCertificate(der)
		if err != nil {
			a.Fatal(err)
		}
		return c, own
	}
	encode := func(c *x509.Certificate, k *ecdsa.PrivateKey) (cert, key []byte) {
		der, err := x509.MarshalPKCS8PrivateKey(k)
		if err != nil {
			a.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	top, topKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: rand.Text()}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, leafKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: from, NotAfter: to, DNSNames: []string{webhookHost}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, top, topKey)
	caCert, caKey = encode(top, topKey)
	cert, key = encode(leaf, leafKey)
	return caCert, caKey, cert, key
}

// spread listens where the Service is and gives connections to the ports in turn.
func (a *admission) spread(ports ...int) {
	a.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(a.Context(), "tcp", a.at(a.port))
	if err != nil {
		a.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(a.Context()))
	var conns sync.WaitGroup
	conns.Go(func() { // ends with the listener
		for i := 0; ; i++ {
			in, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { pipe(ctx, in, a.at(ports[i%len(ports)])) })
		}
	})
	a.Cleanup(func() {
		cancel()
		_ = l.Close()
		conns.Wait()
	})
}

// pipe carries bytes until either end or ctx is done.
func pipe(ctx context.Context, in net.Conn, to string) {
	defer in.Close()
	var d net.Dialer
	out, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	stop := context.AfterFunc(ctx, func() { _, _ = in.Close(), out.Close() })
	defer stop()
	done := make(chan struct{})
	go func() { // ends with either
		defer close(done)
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
	_ = in.Close()
	<-done
}
