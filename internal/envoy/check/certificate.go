package check

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/asn1"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// parseCertificate reads a certificate as Go does, and refuses what Go takes and BoringSSL
// does not: Envoy would refuse it, and with it the next change of every listener that
// refers to it.
func parseCertificate(der []byte) (*x509.Certificate, error) {
	c, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return c, checkEncoding(c.RawTBSCertificate)
}

// tbsCertificate is the part of a certificate that is signed (RFC 5280, 4.1), as far as
// its encoding is looked at.
type tbsCertificate struct {
	Version         int `asn1:"optional,explicit,default:0,tag:0"`
	Serial          asn1.RawValue
	Algorithm       asn1.RawValue
	Issuer          asn1.RawValue
	Validity        struct{ NotBefore, NotAfter asn1.RawValue }
	Subject         asn1.RawValue
	PublicKey       asn1.RawValue
	IssuerUniqueID  asn1.RawValue `asn1:"optional,tag:1"`
	SubjectUniqueID asn1.RawValue `asn1:"optional,tag:2"`
	Extensions      asn1.RawValue `asn1:"optional,explicit,tag:3"`
}

// The forms of a time that BoringSSL reads: to the second.
var (
	utcTime         = regexp.MustCompile(`^[0-9]{12}(Z|[-+][0-9]{4})$`)
	generalizedTime = regexp.MustCompile(`^[0-9]{14}Z$`)
)

func checkEncoding(tbs []byte) error {
	var c tbsCertificate
	if _, err := asn1.Unmarshal(tbs, &c); err != nil {
		return err
	}
	if c.Version < 2 && len(c.Extensions.FullBytes) > 0 {
		return fmt.Errorf("it is of version %d and has extensions, which are of version 3", c.Version+1)
	}
	if c.Version < 1 && len(c.IssuerUniqueID.FullBytes)+len(c.SubjectUniqueID.FullBytes) > 0 {
		return errors.New("it is of version 1 and has unique identifiers, which are of version 2")
	}
	for _, t := range []asn1.RawValue{c.Validity.NotBefore, c.Validity.NotAfter} {
		if t.Tag == asn1.TagUTCTime && !utcTime.Match(t.Bytes) || t.Tag == asn1.TagGeneralizedTime && !generalizedTime.Match(t.Bytes) {
			return fmt.Errorf("time %q: want one to the second, in UTC", t.Bytes)
		}
	}
	if _, err := readName(c.Issuer.FullBytes); err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	if _, err := readName(c.Subject.FullBytes); err != nil {
		return fmt.Errorf("subject: %w", err)
	}
	return nil
}

// attribute is a part of a distinguished name.
type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

// readName reads a distinguished name.
func readName(der []byte) (list []attribute, err error) {
	var sets []asn1.RawValue
	if _, err := asn1.Unmarshal(der, &sets); err != nil {
		return nil, err
	}
	for _, set := range sets {
		if len(set.Bytes) == 0 {
			return nil, errors.New("a part of the name is empty")
		}
		for rest := set.Bytes; len(rest) > 0; {
			var a attribute
			if rest, err = asn1.Unmarshal(rest, &a); err != nil {
				return nil, err
			}
			if a.Value.Tag == asn1.TagUTF8String && strings.ContainsFunc(string(a.Value.Bytes), isNoncharacter) {
				return nil, errors.New("a part of the name has a code point that is no character")
			}
			list = append(list, a)
		}
	}
	return list, nil
}

// isNoncharacter is what Unicode will never make a character of.
func isNoncharacter(r rune) bool { return r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef }

var (
	oidCommonName = asn1.ObjectIdentifier{2, 5, 4, 3}
	oidKeyUsage   = asn1.ObjectIdentifier{2, 5, 29, 15}
	// oidFeature is what a certificate demands of a handshake (RFC 7633).
	oidFeature = asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 24}
)

// staple is the feature that is an OCSP response.
const staple = 5

// checkLeaf refuses a certificate that Envoy does not show, whatever its key.
func checkLeaf(leaf *x509.Certificate) error {
	name, err := readName(leaf.RawSubject)
	if err != nil {
		return err
	}
	for _, a := range name { // the first counts
		if a.Type.Equal(oidCommonName) {
			if len(a.Value.Bytes) == 0 {
				return errors.New("its common name is empty")
			}
			break
		}
	}
	_, ec := leaf.PublicKey.(*ecdsa.PublicKey)
	for _, e := range leaf.Extensions {
		switch {
		case e.Id.Equal(oidKeyUsage) && ec && leaf.KeyUsage&x509.KeyUsageDigitalSignature == 0:
			return errors.New("its key usage does not have digitalSignature, which TLS needs of an ECDSA key")
		case e.Id.Equal(oidFeature):
			var features []int
			if rest, err := asn1.Unmarshal(e.Value, &features); err != nil || len(rest) > 0 || slices.Contains(features, staple) {
				return errors.New("it demands a stapled OCSP response, which is not supported")
			}
		}
	}
	return nil
}
