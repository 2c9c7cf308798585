package check

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"
)

// The parts of what is signed of a certificate, in their order.
const (
	partVersion = iota
	partSerial
	partAlgorithm
	partIssuer
	partValidity
	partSubject
	partKey
	partExtensions
)

// oddity is a certificate that is unusual in one way.
type oddity struct {
	name    string
	key     crypto.Signer
	extra   []pkix.Extension     // beside those of the template
	usage   x509.KeyUsage        // 0: not said
	change  func(parts [][]byte) // of what is signed; a nil part is left out
	outer   func(parts [][]byte) // of the whole: what is signed, the algorithm, the signature
	refused string               // why it is refused although Go reads it, in part; empty: it is Go's to say
}

func der(class, tag int, compound bool, content ...[]byte) []byte {
	out, err := asn1.Marshal(asn1.RawValue{Class: class, Tag: tag, IsCompound: compound, Bytes: []byte(joined(content))})
	if err != nil {
		panic(err)
	}
	return out
}

func joined(content [][]byte) string {
	var b strings.Builder
	for _, c := range content {
		b.Write(c)
	}
	return b.String()
}

func sequence(content ...[]byte) []byte {
	return der(asn1.ClassUniversal, asn1.TagSequence, true, content...)
}

func text(tag int, s string) []byte { return der(asn1.ClassUniversal, tag, false, []byte(s)) }

// name is a distinguished name with one common name.
func name(tag int, s string) []byte {
	cn := must(asn1.Marshal(asn1.ObjectIdentifier{2, 5, 4, 3}))
	return sequence(der(asn1.ClassUniversal, asn1.TagSet, true, sequence(cn, text(tag, s))))
}

func subject(tag int, s string) func([][]byte) {
	return func(parts [][]byte) { parts[partSubject], parts[partIssuer] = name(tag, s), name(tag, s) }
}

func validity(tag int, from, to string) func([][]byte) {
	return func(parts [][]byte) { parts[partValidity] = sequence(text(tag, from), text(tag, to)) }
}

func san(names ...[]byte) []pkix.Extension {
	return []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: sequence(names...)}}
}

func generalName(tag int, compound bool, content ...[]byte) []byte {
	return der(asn1.ClassContextSpecific, tag, compound, content...)
}

// parts splits a sequence.
func parts(sequence []byte) [][]byte {
	var whole asn1.RawValue
	if _, err := asn1.Unmarshal(sequence, &whole); err != nil {
		panic(err)
	}
	var out [][]byte
	for rest := whole.Bytes; len(rest) > 0; {
		var one asn1.RawValue
		next, err := asn1.Unmarshal(rest, &one)
		if err != nil {
			panic(err)
		}
		out, rest = append(out, one.FullBytes), next
	}
	return out
}

// pair is the certificate, self-signed, with its key, as PEM.
func (o oddity) pair() (cert, key []byte) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "odd"}, KeyUsage: o.usage, ExtraExtensions: o.extra,
		NotBefore: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC),
	}
	if o.extra == nil {
		template.DNSNames = []string{"odd.example"}
	}
	whole := parts(must(x509.CreateCertificate(rand.Reader, template, template, o.key.Public(), o.key)))
	if o.change != nil {
		signed := parts(whole[0])
		o.change(signed)
		whole[0] = sequence(signed...)
	}
	if o.outer != nil {
		o.outer(whole)
	}
	pkcs8 := must(x509.MarshalPKCS8PrivateKey(o.key))
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sequence(whole...)}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
}

// oddities are certificates of which a parser may think this or that.
func oddities() []oddity {
	p256 := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	rsa2048 := must(rsa.GenerateKey(rand.Reader, 2048))
	_, ed, _ := ed25519.GenerateKey(rand.Reader)
	usage := pkix.Extension{Id: oidKeyUsage, Critical: true, Value: must(asn1.Marshal(asn1.BitString{}))}
	unknown := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 99999, 1}
	withNull := sequence(must(asn1.Marshal(asn1.ObjectIdentifier{1, 2, 840, 10045, 4, 3, 2})), []byte{asn1.TagNull, 0})
	null := func(at int) func([][]byte) { return func(parts [][]byte) { parts[at] = withNull } }
	list := []oddity{
		{name: "nothing odd"},
		{name: "RSA", key: rsa2048},
		{name: "Ed25519", key: ed},
		{name: "of version 1", change: func(p [][]byte) { p[partVersion], p[partExtensions] = nil, nil }},
		{name: "of version 1, with extensions", change: func(p [][]byte) { p[partVersion] = nil }, refused: "version 1"},
		{name: "of version 2, with extensions", change: func(p [][]byte) {
			p[partVersion] = der(asn1.ClassContextSpecific, 0, true, []byte{asn1.TagInteger, 1, 1})
		}, refused: "version 2"},
		{name: "of version 3, without extensions", change: func(p [][]byte) { p[partExtensions] = nil }},
		{name: "of version 1, with a unique identifier", change: func(p [][]byte) {
			p[partVersion], p[partExtensions] = nil, der(asn1.ClassContextSpecific, 1, false, []byte{0, 1})
		}, refused: "unique identifiers"},
		{name: "of version 2, with a unique identifier", change: func(p [][]byte) {
			p[partVersion] = der(asn1.ClassContextSpecific, 0, true, []byte{asn1.TagInteger, 1, 1})
			p[partExtensions] = der(asn1.ClassContextSpecific, 1, false, []byte{0, 1})
		}},
		{name: "serial number zero", change: func(p [][]byte) { p[partSerial] = []byte{asn1.TagInteger, 1, 0} }},
		{name: "negative serial number", change: func(p [][]byte) { p[partSerial] = []byte{asn1.TagInteger, 1, 0x80} }},
		{name: "serial number of 30 bytes", change: func(p [][]byte) {
			p[partSerial] = text(asn1.TagInteger, strings.Repeat("\x11", 30))
		}},
		{name: "times without seconds", change: validity(asn1.TagUTCTime, "2001010000Z", "4001010000Z"), refused: "time"},
		{name: "times with a zone", change: validity(asn1.TagUTCTime, "200101000000+0100", "400101000000+0100")},
		{name: "generalized times", change: validity(asn1.TagGeneralizedTime, "20200101000000Z", "20400101000000Z")},
		{name: "generalized times with a zone", change: validity(asn1.TagGeneralizedTime, "20200101000000+0100", "20400101000000+0100"), refused: "time"},
		{name: "generalized times with fractions", change: validity(asn1.TagGeneralizedTime, "20200101000000.5Z", "20400101000000.5Z")},
		{name: "it ends before it begins", change: validity(asn1.TagUTCTime, "400101000000Z", "200101000000Z")},
		{name: "the year 9999", change: validity(asn1.TagGeneralizedTime, "20200101000000Z", "99991231235959Z")},
		{name: "the year 0", change: validity(asn1.TagGeneralizedTime, "00000101000000Z", "20400101000000Z")},
		{name: "no subject", change: func(p [][]byte) { p[partSubject] = sequence() }},
		{name: "neither subject nor issuer", change: func(p [][]byte) { p[partSubject], p[partIssuer] = sequence(), sequence() }},
		{name: "a set of nothing as subject", change: func(p [][]byte) { p[partSubject] = sequence(der(asn1.ClassUniversal, asn1.TagSet, true)) }, refused: "part of the name is empty"},
		{name: "a subject with NUL", change: subject(asn1.TagUTF8String, "a\x00b")},
		{name: "a subject that is no UTF-8", change: subject(asn1.TagUTF8String, "\xff\xfe")},
		{name: "a subject with a surrogate in UTF-8", change: subject(asn1.TagUTF8String, "\xed\xa0\x80")},
		{name: "a subject with a character that is none", change: subject(asn1.TagUTF8String, "\xef\xbf\xbe"), refused: "no character"},
		{name: "a subject with a character that is none, beyond the first plane", change: subject(asn1.TagUTF8String, "a\U0001ffffb"), refused: "no character"},
		{name: "a subject with a character that is kept back", change: subject(asn1.TagUTF8String, "\ufdd0"), refused: "no character"},
		{name: "a subject with a replacement character", change: subject(asn1.TagUTF8String, "\ufffd")},
		{name: "an issuer with a character that is none", change: func(p [][]byte) { p[partIssuer] = name(asn1.TagUTF8String, "\uffff") }, refused: "no character"},
		{name: "a printable subject", change: subject(asn1.TagPrintableString, "Odd & co * (1)")},
		{name: "a printable subject with @", change: subject(asn1.TagPrintableString, "a@b")},
		{name: "a subject in T.61", change: subject(asn1.TagT61String, "\xe9\xff")},
		{name: "a subject in IA5", change: subject(asn1.TagIA5String, "a@b")},
		{name: "a subject of digits", change: subject(asn1.TagNumericString, "1 2")},
		{name: "a subject in UCS-2", change: subject(asn1.TagBMPString, "\x00a\x00b")},
		{name: "a subject in UCS-2 of odd length", change: subject(asn1.TagBMPString, "\x00a\x00")},
		{name: "a subject in UCS-2 with half a surrogate", change: subject(asn1.TagBMPString, "\xd8\x00\x00a")},
		{name: "a subject in UCS-2 with a surrogate pair", change: subject(asn1.TagBMPString, "\xd8\x00\xdc\x00")},
		{name: "a subject in UCS-2 with a character that is none", change: subject(asn1.TagBMPString, "\xff\xfe")},
		{name: "a subject in UCS-4", change: subject(28, "\x00\x00\x00a")},
		{name: "a visible subject", change: subject(26, "a")},
		{name: "an empty common name", change: subject(asn1.TagUTF8String, ""), refused: "common name"},
		{name: "an empty common name of the issuer", change: func(p [][]byte) { p[partIssuer] = name(asn1.TagUTF8String, "") }},
		{name: "a very long common name", change: subject(asn1.TagUTF8String, strings.Repeat("a", 5000))},
		{name: "an ECDSA key for agreement", usage: x509.KeyUsageKeyAgreement, refused: "digitalSignature"},
		{name: "an ECDSA key for certificates", usage: x509.KeyUsageCertSign, refused: "digitalSignature"},
		{name: "an ECDSA key for nothing", extra: []pkix.Extension{usage}, refused: "digitalSignature"},
		{name: "an ECDSA key for signatures", usage: x509.KeyUsageDigitalSignature},
		{name: "an RSA key for encipherment", key: rsa2048, usage: x509.KeyUsageKeyEncipherment},
		{name: "an RSA key for certificates", key: rsa2048, usage: x509.KeyUsageCertSign},
		{name: "an Ed25519 key for certificates", key: ed, usage: x509.KeyUsageCertSign},
		{name: "no alternative name", extra: []pkix.Extension{}},
		{name: "a list of no alternative names", extra: san()},
		{name: "an empty alternative name", extra: san(generalName(2, false))},
		{name: "an alternative name with NUL", extra: san(generalName(2, false, []byte("a\x00b.example")))},
		{name: "an alternative name with a space", extra: san(generalName(2, false, []byte("a b")))},
		{name: "an alternative name that is not ASCII", extra: san(generalName(2, false, []byte("\xe9.example")))},
		{name: "an alternative name of 300 characters", extra: san(generalName(2, false, []byte(strings.Repeat("a.", 150)+"b")))},
		{name: "wildcards in odd places", extra: san(generalName(2, false, []byte("*")), generalName(2, false, []byte("a.*.b")), generalName(2, false, []byte("*.*")))},
		{name: "an address of five bytes", extra: san(generalName(7, false, []byte{1, 2, 3, 4, 5}))},
		{name: "an address", extra: san(generalName(7, false, []byte{127, 0, 0, 1}))},
		{name: "a URI", extra: san(generalName(6, false, []byte("spiffe://a/b")))},
		{name: "a URI that is none", extra: san(generalName(6, false, []byte(":::")))},
		{name: "a mail address", extra: san(generalName(1, false, []byte("a@b")))},
		{name: "another name", extra: san(generalName(0, true, must(asn1.Marshal(unknown)), der(asn1.ClassContextSpecific, 0, true, text(asn1.TagUTF8String, "x"))))},
		{name: "another name without a value", extra: san(generalName(0, true, must(asn1.Marshal(unknown))))},
		{name: "a directory name", extra: san(generalName(4, true, name(asn1.TagUTF8String, "x")))},
		{name: "a registered number", extra: san(generalName(8, false, []byte{42, 3}))},
		{name: "an X.400 address", extra: san(generalName(3, true))},
		{name: "a name of a kind that there is not", extra: san(generalName(9, false, []byte("x")))},
		{name: "an unknown extension", extra: []pkix.Extension{{Id: unknown, Value: []byte{}}}},
		{name: "an unknown critical extension", extra: []pkix.Extension{{Id: unknown, Critical: true, Value: []byte("x")}}},
		{name: "a staple is a must", extra: []pkix.Extension{{Id: oidFeature, Value: sequence([]byte{asn1.TagInteger, 1, 5})}}, refused: "OCSP"},
		{name: "another feature is a must", extra: []pkix.Extension{{Id: oidFeature, Value: sequence([]byte{asn1.TagInteger, 1, 17})}}},
		{name: "garbage as extended usage", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Value: []byte("garbage")}}},
		{name: "garbage as policies", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 32}, Value: []byte("garbage")}}},
		{name: "garbage as access to information", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 1}, Value: []byte("garbage")}}},
		{name: "garbage as policy constraints", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 36}, Value: []byte("garbage")}}},
		{name: "garbage as alternative names of the issuer", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 18}, Value: []byte("garbage")}}},
		{name: "garbage as Netscape's type", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 16, 840, 1, 113730, 1, 1}, Value: []byte("garbage")}}},
		{name: "a path length though it is no CA", extra: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: sequence([]byte{asn1.TagInteger, 1, 3})}}},
		{name: "a signature with a part of a byte", outer: func(p [][]byte) { p[2] = der(asn1.ClassUniversal, asn1.TagBitString, false, []byte{3, 0xf8}) }},
		{name: "no signature", outer: func(p [][]byte) { p[2] = der(asn1.ClassUniversal, asn1.TagBitString, false, []byte{0}) }},
		{name: "an algorithm with parameters that it has not", change: null(partAlgorithm), outer: null(1)},
		{
			name: "an algorithm that there is not", change: func(p [][]byte) { p[partAlgorithm] = sequence(must(asn1.Marshal(unknown))) },
			outer: func(p [][]byte) { p[1] = sequence(must(asn1.Marshal(unknown))) },
		},
	}
	for i := range list {
		if list[i].key == nil {
			list[i].key = p256
		}
	}
	return list
}

func TestWhatOnlyGoReadsIsRefused(t *testing.T) {
	for _, o := range oddities() {
		chain, key := o.pair()
		block, _ := pem.Decode(chain)
		_, unread := x509.ParseCertificate(block.Bytes)
		_, _, err := KeyPair(chain, key)
		switch {
		case o.refused == "" && (unread == nil) != (err == nil):
			t.Errorf("%s: Go says %v, we say %v", o.name, unread, err)
		case o.refused != "" && unread != nil:
			t.Errorf("%s: Go does not read it: %v", o.name, unread)
		case o.refused != "" && (err == nil || !strings.Contains(err.Error(), o.refused)):
			t.Errorf("%s: got %v, want %q", o.name, err, o.refused)
		}
	}
}

func FuzzAuthorities(f *testing.F) {
	for _, o := range oddities() {
		cert, key := o.pair()
		f.Add(cert)
		f.Add(append(cert, key...))
		f.Add(append(cert, cert...))
	}
	f.Fuzz(func(t *testing.T, bundle []byte) {
		out, err := Authorities(bundle)
		if err != nil {
			return
		}
		again, err := Authorities(out)
		if err != nil || !bytes.Equal(again, out) {
			t.Errorf("the written form is not stable: %v", err)
		}
	})
}
