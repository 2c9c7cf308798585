package spire

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"github.com/spiffe/go-spiffe/v2/workloadapi"
)

// chosen is the certificate of one SVID.
type chosen struct {
	tls.Certificate
	domain spiffeid.TrustDomain
}

// choose is the first SVID that has the DNS name. A workload may have several; one without the
// name would only be refused by those who call.
func choose(c *workloadapi.X509Context, name string) (chosen, error) {
	if len(c.SVIDs) == 0 {
		return chosen{}, errors.New("it gives this workload no SVID")
	}
	ids := make([]string, len(c.SVIDs))
	for i, s := range c.SVIDs {
		ids[i] = s.ID.String()
		leaf := s.Certificates[0]
		if leaf.VerifyHostname(name) != nil {
			continue
		}
		out := chosen{Certificate: tls.Certificate{PrivateKey: s.PrivateKey, Leaf: leaf}, domain: s.ID.TrustDomain()}
		for _, cert := range s.Certificates {
			out.Certificate.Certificate = append(out.Certificate.Certificate, cert.Raw)
		}
		return out, nil
	}
	return chosen{}, fmt.Errorf("its SVID %s has not the DNS name %s: give it to the registration entry (dnsNames)", strings.Join(ids, ", "), name)
}
