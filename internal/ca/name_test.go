package ca_test

import (
	"crypto/elliptic"
	"crypto/x509"
	"errors"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

const webhookHost = "aether-controller-webhook.aether-system.svc"

func TestACertificateForAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "ca")
		a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}, Lifetime: 48 * time.Hour, SVIDTTL: 24 * time.Hour})
		n := a.Named(webhookHost)
		synctest.Wait()
		first, err := n.Certificate()
		if err != nil {
			t.Fatal(err)
		}
		verify := func(leaf *x509.Certificate, usage x509.ExtKeyUsage) error {
			_, err := leaf.Verify(x509.VerifyOptions{DNSName: webhookHost, Roots: n.Roots().Pool(), CurrentTime: time.Now(), KeyUsages: []x509.ExtKeyUsage{usage}})
			return err
		}
		if err := verify(first.Leaf, x509.ExtKeyUsageServerAuth); err != nil {
			t.Error(err)
		}
		// It is nobody on the discovery channel: it has no ID, and is no client's.
		if err := verify(first.Leaf, x509.ExtKeyUsageClientAuth); err == nil {
			t.Error("a client can use it")
		}
		if id, err := spiffeid.PeerFromCertificate(domain(t), first.Leaf); err == nil {
			t.Errorf("it has the ID %s", id)
		}
		pass(12*time.Hour - 2*time.Second)
		if again, err := n.Certificate(); err != nil || again != first {
			t.Errorf("before half of its life it is another, %v", err)
		}
		pass(2 * time.Second)
		second, err := n.Certificate()
		if err != nil || second == first {
			t.Fatalf("at half of its life it is the same, %v", err)
		}
		changed := n.Changed()
		put(t, dir, makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t))
		<-changed
		third, err := n.Certificate()
		if err != nil || third == second {
			t.Fatalf("after the CA changed it is the same, %v", err)
		}
		for _, leaf := range []*x509.Certificate{second.Leaf, third.Leaf} {
			if err := verify(leaf, x509.ExtKeyUsageServerAuth); err != nil {
				t.Errorf("by the roots that are said now: %v", err)
			}
		}
	})
}

// An authority that may issue SVIDs and no names gives an error, and no certificate that every
// API server would refuse.
func TestAnAuthorityThatMayIssueNoNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ca")
	put(t, dir, makeCA(t, nil, newKey(t, elliptic.P256()), func(c *x509.Certificate) {
		c.PermittedDNSDomains, c.PermittedDNSDomainsCritical = []string{"example.com"}, true
		c.URIs = []*url.URL{{Scheme: "spiffe", Host: "cluster.local"}}
	}).material(t))
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: dir}})
	<-a.Ready()
	if _, err := a.Named(webhookHost).Certificate(); !errors.Is(err, ca.ErrUnverified) {
		t.Errorf("got %v, want ErrUnverified", err)
	}
	if _, err := a.Named("webhook.example.com").Certificate(); err != nil {
		t.Error(err)
	}
}

func TestNoCertificateWithoutACA(t *testing.T) {
	a, err := ca.New(ca.Config{Store: ca.FileStore{Dir: t.TempDir()}, TrustDomain: domain(t)})
	if err != nil {
		t.Fatal(err)
	}
	if cert, err := a.Named(webhookHost).Certificate(); !errors.Is(err, svid.ErrUnusable) {
		t.Errorf("got %v, %v", cert, err)
	}
	if got := a.Named(webhookHost).Roots(); !slices.Equal(got.Fingerprints(), []string{}) {
		t.Errorf("roots %v", got.Fingerprints())
	}
}
