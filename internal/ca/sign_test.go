package ca_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	gospiffeid "github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

func TestLeafIsWhatTheDesignSays(t *testing.T) {
	now := time.Now()
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}, Now: func() time.Time { return now }})
	waitReady(t, a)
	key := newKey(t, elliptic.P256())
	pod := spiffeid.Pod{Name: "edge-1", UID: "uid-1", Node: "node-1"}
	id := account(t, "aether-system", "coxswain-shared-proxy")
	leaf, out := issue(t, a, svid.Request{ID: id, Pod: pod, PublicKey: key.Public()})
	root := a.Roots().Certificates()[0]

	if got, err := spiffeid.PeerFromCertificate(domain(t), leaf); err != nil || got.ID != id || got.Pod != pod {
		t.Errorf("reads as %+v, %v", got, err)
	}
	if len(leaf.URIs) != 1 || len(leaf.DNSNames)+len(leaf.IPAddresses)+len(leaf.EmailAddresses) != 0 {
		t.Errorf("SANs %v %v %v %v", leaf.URIs, leaf.DNSNames, leaf.IPAddresses, leaf.EmailAddresses)
	}
	if len(leaf.Subject.Names) != 0 {
		t.Errorf("subject %s", leaf.Subject)
	}
	if leaf.IsCA || !leaf.BasicConstraintsValid || leaf.KeyUsage != x509.KeyUsageDigitalSignature {
		t.Errorf("CA %v, key usage %b", leaf.IsCA, leaf.KeyUsage)
	}
	if diff := cmp.Diff([]x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, leaf.ExtKeyUsage); diff != "" {
		t.Error(diff)
	}
	if got, want := leaf.NotBefore, now.Add(-2*time.Minute).Truncate(time.Second); !got.Equal(want) {
		t.Errorf("not before %s, want %s", got, want)
	}
	if got, want := leaf.NotAfter, now.Add(24*time.Hour).Truncate(time.Second); !got.Equal(want) || !out.NotAfter.Equal(want) {
		t.Errorf("not after %s and %s, want %s", got, out.NotAfter, want)
	}
	if len(leaf.SubjectKeyId) == 0 || !bytes.Equal(leaf.AuthorityKeyId, root.SubjectKeyId) || out.KeyID != hex.EncodeToString(root.SubjectKeyId) {
		t.Errorf("SKI %x, AKI %x, key ID %s; root %x", leaf.SubjectKeyId, leaf.AuthorityKeyId, out.KeyID, root.SubjectKeyId)
	}
	if n := leaf.SerialNumber.BitLen(); n < 64 || n > 128 || out.Serial != fmt.Sprintf("%032x", leaf.SerialNumber) {
		t.Errorf("serial %s of %d bits", out.Serial, n)
	}
	critical := map[string]bool{}
	for _, e := range leaf.Extensions {
		critical[e.Id.String()] = e.Critical
	}
	want := map[string]bool{
		"2.5.29.15": true, "2.5.29.37": false, "2.5.29.19": true, "2.5.29.14": false, "2.5.29.35": false, "2.5.29.17": true,
		spiffeid.PodExtensionOID().String(): false,
	}
	if diff := cmp.Diff(want, critical); diff != "" {
		t.Errorf("extensions and whether they are critical: %s", diff)
	}
	if len(out.Chain) != 1 {
		t.Errorf("the chain carries %d certificates, want the leaf without the root", len(out.Chain))
	}
	other, _ := issue(t, a, svid.Request{ID: id, PublicKey: key.Public()})
	if other.SerialNumber.Cmp(leaf.SerialNumber) == 0 {
		t.Error("two leaves of one serial")
	}
}

func TestOwnRoot(t *testing.T) {
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}, Lifetime: 10 * time.Hour})
	waitReady(t, a)
	root := a.Roots().Certificates()[0]
	if !root.IsCA || !root.MaxPathLenZero || root.KeyUsage != x509.KeyUsageCertSign|x509.KeyUsageCRLSign {
		t.Errorf("CA %v, path length %d, usage %b", root.IsCA, root.MaxPathLen, root.KeyUsage)
	}
	if len(root.URIs) != 1 || root.URIs[0].String() != "spiffe://cluster.local" {
		t.Errorf("URIs %v", root.URIs)
	}
	if left := time.Until(root.NotAfter); left > 10*time.Hour || left < 9*time.Hour {
		t.Errorf("lifetime left %s", left)
	}
	leaf, _ := issue(t, a, svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()})
	if !leaf.NotAfter.Equal(root.NotAfter) {
		t.Errorf("a leaf until %s outlives its CA until %s", leaf.NotAfter, root.NotAfter)
	}
	// A path length of zero: what we issue cannot issue.
	if _, err := spiffeid.PeerFromCertificate(domain(t), root); !errors.Is(err, spiffeid.ErrNotSVID) {
		t.Errorf("the root passes as a peer: %v", err)
	}
}

func TestSignRefuses(t *testing.T) {
	a, _ := start(t, ca.Config{Store: ca.FileStore{Dir: filepath.Join(t.TempDir(), "ca")}})
	waitReady(t, a)
	good := newKey(t, elliptic.P256()).Public()
	for name, tc := range map[string]struct {
		req  svid.Request
		want error
	}{
		"an ID of another trust domain":  {svid.Request{ID: gospiffeid.RequireFromString("spiffe://evil/ns/a/sa/b"), PublicKey: good}, spiffeid.ErrTrustDomain},
		"no ID":                          {svid.Request{PublicKey: good}, spiffeid.ErrTrustDomain},
		"no key":                         {svid.Request{ID: controller(t)}, svid.ErrWeakKey},
		"a weak key":                     {svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P224()).Public()}, svid.ErrWeakKey},
		"a pod that cannot be written":   {svid.Request{ID: controller(t), PublicKey: good, Pod: spiffeid.Pod{Name: "a\nb", UID: "u"}}, spiffeid.ErrMalformedPod},
		"a pod without a UID to tell it": {svid.Request{ID: controller(t), PublicKey: good, Pod: spiffeid.Pod{Name: "a"}}, spiffeid.ErrMalformedPod},
	} {
		t.Run(name, func(t *testing.T) {
			if out, err := a.Sign(t.Context(), tc.req); !errors.Is(err, tc.want) || out.Chain != nil {
				t.Errorf("got %+v, %v; want %v", out, err, tc.want)
			}
		})
	}
}

func TestSignWithoutACAIsUnusable(t *testing.T) {
	a, err := ca.New(ca.Config{Store: ca.FileStore{Dir: t.TempDir()}, TrustDomain: domain(t)})
	if err != nil {
		t.Fatal(err)
	}
	req := svid.Request{ID: controller(t), PublicKey: newKey(t, elliptic.P256()).Public()}
	if _, err := a.Sign(t.Context(), req); !errors.Is(err, svid.ErrUnusable) {
		t.Errorf("got %v, want ErrUnusable", err)
	}
	if _, err := a.ServerTLS(controller(t)).GetCertificate(nil); !errors.Is(err, svid.ErrUnusable) {
		t.Errorf("server certificate: got %v, want ErrUnusable", err)
	}
}

func TestNewRefuses(t *testing.T) {
	for name, cfg := range map[string]ca.Config{
		"no store":            {TrustDomain: domain(t)},
		"no trust domain":     {Store: ca.FileStore{}},
		"a negative lifetime": {Store: ca.FileStore{}, TrustDomain: domain(t), SVIDTTL: -1},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := ca.New(cfg); err == nil {
				t.Error("accepted")
			}
		})
	}
}
