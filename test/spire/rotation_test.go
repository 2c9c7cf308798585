//go:build cluster

// Package spire_test has the webhook's certificate come from a real SPIRE, on the cluster of
// make cluster-up. It puts SPIRE there, upgrades Aether to use it, and takes both back.
package spire_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/release"
	"aether.io/aether/test/cluster/spire"
	"aether.io/aether/test/pods"
)

// The webhook's Service, and the configuration that has API servers call it.
const (
	webhook       = release.Name + "-controller-webhook"
	configuration = webhook + "." + release.Namespace
)

// ttl is how long the webhook's certificate lives: SPIRE gives another after half of it.
const ttl = time.Minute

// rig is a cluster with SPIRE.
type rig struct {
	*pods.Rig
	*spire.SPIRE
}

func newRig(t *testing.T) rig {
	t.Helper()
	r := pods.New(t)
	cache, err := build.Cache()
	if err != nil {
		t.Fatal(err)
	}
	program, err := build.SPIRE(r.Root).Find(cache)
	if err != nil {
		t.Fatal(err)
	}
	s, err := spire.New(spire.Config{Cluster: r.Cluster, Program: program, SVIDTTL: ttl, Out: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Cluster.Kubectl(t.Context(), "", "get", "namespace", spire.Namespace); err == nil {
		t.Fatal("SPIRE is on the cluster: this test brings its own, so make cluster-up without SPIRE=1")
	}
	t.Cleanup(func() { // it goes when no pod has its volumes any more
		if err := s.Down(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if err := s.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.State(t.Context()))
		}
	})
	return rig{r, s}
}

// use has Aether take its certificate from SPIRE until the test ends. It returns when the
// controller is ready.
func (r rig) use(ctx context.Context) {
	r.Helper()
	chart := filepath.Join(r.Root, "charts/aether")
	r.Cleanup(func() {
		with := strings.Fields(r.System("get", "pods", "--selector=app.kubernetes.io/component=controller", "--output=name"))
		if err := r.Install(context.WithoutCancel(ctx), release.Name, chart, "--take-ownership", "--force-conflicts"); err != nil {
			r.Error(err)
			return
		}
		for _, pod := range with { // the context of Settled is done by now
			r.System("wait", "--for=delete", pod, "--timeout="+pods.Patience.String())
		}
	})
	if err := r.Install(ctx, release.Name, chart, "--take-ownership", "--force-conflicts", "--values", filepath.Join(r.Root, spire.Values)); err != nil {
		r.Fatal(err)
	}
	r.Settled("aether-controller", "controller")
}

// logs waits until the controller has logged the words.
func (r rig) logs(words string) {
	r.Helper()
	r.Eventually(func(context.Context) string {
		if log := r.System("logs", "deployment/aether-controller"); !strings.Contains(log, words) {
			return "the controller does not say " + words + ":\n" + log
		}
		return ""
	})
}

// certificate is what the webhook shows to a client that trusts SPIRE's authorities.
func (r rig) certificate(ctx context.Context) (*x509.Certificate, error) {
	bundle, err := r.Bundle(ctx)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle)) {
		return nil, fmt.Errorf("bundle %q", bundle)
	}
	address := net.JoinHostPort(r.System("get", "service", webhook, "--output=jsonpath={.spec.clusterIP}"), "443")
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := (&tls.Dialer{Config: &tls.Config{
		RootCAs: pool, ServerName: webhook + "." + release.Namespace + ".svc", MinVersion: tls.VersionTLS13,
	}}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return conn.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

// rotated waits until the webhook's certificate is another, and returns it.
func (r rig) rotated(from *x509.Certificate) (to *x509.Certificate) {
	r.Helper()
	r.Eventually(func(ctx context.Context) string {
		cert, err := r.certificate(ctx)
		if err != nil {
			return err.Error()
		}
		if from != nil && cert.Equal(from) {
			return "the webhook still has certificate " + cert.SerialNumber.String()
		}
		to = cert
		return ""
	})
	return to
}

// trusted waits until the API server is told to trust exactly SPIRE's authorities, and returns
// how many they are.
func (r rig) trusted() int {
	r.Helper()
	count := 0
	r.Eventually(func(ctx context.Context) string {
		text, err := base64.StdEncoding.DecodeString(r.System("get", "validatingwebhookconfiguration", configuration, "--output=jsonpath={.webhooks[0].clientConfig.caBundle}"))
		if err != nil {
			return err.Error()
		}
		bundle, err := r.Bundle(ctx)
		if err != nil {
			return err.Error()
		}
		has := func(pem, in string) bool {
			for _, block := range strings.SplitAfter(strings.TrimSpace(pem)+"\n", "-----END CERTIFICATE-----\n") {
				if !strings.Contains(in, block) {
					return false
				}
			}
			return true
		}
		if count = strings.Count(string(text), "BEGIN"); count == 0 || !has(string(text), bundle) || !has(bundle, string(text)) {
			return fmt.Sprintf("the API server trusts\n%s\nSPIRE has\n%s", text, bundle)
		}
		return ""
	})
	return count
}

func TestTheWebhooksCertificateIsSPIREsAndRotatesUnderWrites(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	entry := spire.Controller(release.Namespace, release.Name)

	// Without an agent, and with an SVID that has not the name, the controller is ready all the
	// same, says what is wrong, and right writes pass.
	nameless := entry
	nameless.DNSNames = nil
	if err := errors.Join(r.Register(ctx, nameless), r.Agents(ctx, false)); err != nil {
		t.Fatal(err)
	}
	r.use(ctx)
	r.logs("no new webhook certificate from SPIRE")
	w := newWriter(r.Rig)
	if err := w.patch(ctx, `{"spec": {"proxy": {"accessLogSuccessSampleRate": 1}}}`); err != nil {
		t.Errorf("without a webhook a right write fails: %v", err)
	}
	if err := r.Agents(ctx, true); err != nil {
		t.Fatal(err)
	}
	r.logs("has not the DNS name " + webhook + "." + release.Namespace + ".svc")

	if err := r.Register(ctx, entry); err != nil {
		t.Fatal(err)
	}
	first := r.rotated(nil)
	if id := first.URIs[0].String(); id != entry.ID() {
		t.Errorf("the webhook is %s", id)
	}
	if n := r.trusted(); n != 1 {
		t.Errorf("SPIRE has %d authorities", n)
	}
	r.Eventually(w.refused) // the API server has the new bundle

	flow := w.start(t)
	// Another authority is trusted before it signs.
	id, err := r.Prepare(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second := r.rotated(first)
	if n := r.trusted(); n != 2 {
		t.Errorf("SPIRE has %d authorities, want the prepared one as well", n)
	}
	if err := r.Activate(ctx, id); err != nil {
		t.Fatal(err)
	}
	third := second
	for string(third.AuthorityKeyId) == string(first.AuthorityKeyId) {
		third = r.rotated(third)
	}
	flow.end(t)
}
