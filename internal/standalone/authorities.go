package standalone

import "os"

// systemAuthorities is the path of the PEM bundle of the authorities that this machine,
// and so its proxy, believes; empty if it is in none of the usual places.
func systemAuthorities() string {
	for _, path := range []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Arch, and the images of Envoy
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora, RHEL
		"/etc/pki/tls/certs/ca-bundle.crt",                  // older of these
		"/etc/ssl/ca-bundle.pem",                            // SUSE
		"/etc/ssl/cert.pem",                                 // Alpine
	} {
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}
