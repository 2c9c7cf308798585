package ca_test

import (
	"bytes"
	"crypto/elliptic"
	"errors"
	"testing"

	"aether.io/aether/internal/ca"
	"aether.io/aether/internal/svid"
)

func TestAKeyIsDerivedFromTheCAAndThePurposeAndNothingElse(t *testing.T) {
	none, err := ca.New(ca.Config{Store: fixed{}, TrustDomain: domain(t)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Derive("p"); !errors.Is(err, svid.ErrUnusable) {
		t.Errorf("without a CA: %v", err)
	}
	one, other := makeCA(t, nil, newKey(t, elliptic.P256()), nil).material(t), makeCA(t, nil, newKey(t, elliptic.P384()), nil).material(t)
	derive := func(m ca.Material, purpose string) []byte {
		t.Helper()
		a, _ := start(t, ca.Config{Store: fixed{m}, TrustDomain: domain(t)})
		waitReady(t, a)
		key, err := a.Derive(purpose)
		if err != nil || len(key) != 32 {
			t.Fatalf("%d bytes, %v", len(key), err)
		}
		return key
	}
	want := derive(one, "p")
	if !bytes.Equal(want, derive(one, "p")) {
		t.Error("two replicas have different keys")
	}
	if bytes.Equal(want, derive(one, "q")) || bytes.Equal(want, derive(other, "p")) {
		t.Error("another purpose, or another CA, has the same key")
	}
}
