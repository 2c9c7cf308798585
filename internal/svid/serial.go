package svid

import (
	"crypto/x509"
	"fmt"
)

// Serial is how a certificate's serial number is written everywhere, so that logs, audit
// and reports can be compared: lower-case hexadecimal, at least 32 digits.
func Serial(cert *x509.Certificate) string { return fmt.Sprintf("%032x", cert.SerialNumber) }
