package analyze

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/analyze/code"
	"aether.io/aether/internal/object"
)

// soon is how long before its end a certificate is told of.
const soon = 30 * 24 * time.Hour

// lintCertificates looks at the dates and names of certificates that listeners and Gateways
// show. That they can be used at all is the graph's to say.
func (a *analysis) lintCertificates() {
	dated := map[object.Key]bool{}
	for _, r := range a.refs {
		leaf := a.leaf(r.To)
		if leaf == nil || dated[r.To] {
			continue
		}
		dated[r.To] = true
		a.lintDates(r, leaf)
	}
	for k, o := range a.objects {
		switch o := o.(type) {
		case *gatewayv1.Gateway:
			for i := range o.Spec.Listeners {
				a.lintHostname(k, fmt.Sprintf("spec.listeners[%d]", i), o.Spec.Listeners[i].Hostname)
			}
		case *gatewayv1.ListenerSet:
			for i := range o.Spec.Listeners {
				a.lintHostname(k, fmt.Sprintf("spec.listeners[%d]", i), o.Spec.Listeners[i].Hostname)
			}
		}
	}
}

// leaf is the certificate of a Secret that is written; nil if there is none that can be read.
func (a *analysis) leaf(k object.Key) *x509.Certificate {
	s, is := a.objects[k].(*corev1.Secret)
	if !is || a.stood[k] || s.Type != corev1.SecretTypeTLS {
		return nil
	}
	block, _ := pem.Decode(s.Data[corev1.TLSCertKey])
	if block == nil {
		return nil
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil
	}
	return leaf
}

func (a *analysis) lintDates(r reference, leaf *x509.Certificate) {
	const day = "2006-01-02 15:04 MST"
	switch end := leaf.NotAfter.UTC(); {
	case a.c.Now.After(end):
		a.say(r.To, code.CertificateDead, "data[tls.crt]", "the certificate expired at %s; %s uses it", end.Format(day), r.From)
	case a.c.Now.Before(leaf.NotBefore):
		a.say(r.To, code.CertificateDead, "data[tls.crt]", "the certificate is not valid before %s; %s uses it", leaf.NotBefore.UTC().Format(day), r.From)
	case end.Sub(a.c.Now) < soon:
		a.say(r.To, code.CertificateSoon, "data[tls.crt]", "the certificate expires at %s; %s uses it", end.Format(day), r.From)
	}
}

// lintHostname looks whether one of a listener's certificates, if all of them are known, is for
// its hostname.
func (a *analysis) lintHostname(k object.Key, at string, hostname *gatewayv1.Hostname) {
	if hostname == nil || *hostname == "" {
		return
	}
	var names []string
	for _, r := range a.refs {
		if r.From != k || !strings.HasPrefix(r.Path, at+".tls.certificateRefs[") {
			continue
		}
		leaf := a.leaf(r.To)
		if leaf == nil || leaf.VerifyHostname(probe(string(*hostname))) == nil || covers(leaf, string(*hostname)) {
			return
		}
		names = append(names, leaf.DNSNames...)
	}
	if len(names) > 0 {
		a.say(k, code.CertificateHost, at+".hostname", "no certificate is for %s: they are for %s", *hostname, strings.Join(names, ", "))
	}
}

// probe is a host that a hostname stands for.
func probe(hostname string) string {
	if rest, wild := strings.CutPrefix(hostname, "*."); wild {
		return "any." + rest
	}
	return hostname
}

// covers reports whether a wildcard hostname is met in part: a listener for *.example.com may
// have a certificate for each of its hosts.
func covers(leaf *x509.Certificate, hostname string) bool {
	rest, wild := strings.CutPrefix(hostname, "*.")
	if !wild {
		return false
	}
	for _, n := range leaf.DNSNames {
		if strings.HasSuffix(n, "."+rest) {
			return true
		}
	}
	return false
}
