package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aether.io/aether/test/features/example"
)

// maxSuggestions is how many requests are printed: a person tries a few and reads the rest.
const maxSuggestions = 6

// suggest prints requests to try, with what comes of each. Certificates of clients are in
// the directory named.
func suggest(w io.Writer, e *example.Example, folder, clients string) {
	if len(e.Requests) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\nTry, when \"bin/aetherctl standalone %s\" says ready:\n", e.Title, folder)
	shown := 0
	for i := range e.Requests {
		r := &e.Requests[i]
		if shown == maxSuggestions || !sendable(r) {
			continue
		}
		shown++
		fmt.Fprintf(w, "\n  # %s: %s\n", r.Name, outcome(r))
		if len(r.Without) > 0 {
			fmt.Fprintf(w, "  # (first take %s out of the manifests)\n", strings.Join(r.Without, ", "))
		}
		fmt.Fprintf(w, "  %s\n", curl(r, clients))
	}
	if left := len(e.Requests) - shown; left > 0 {
		fmt.Fprintf(w, "\n%d more in %s\n", left, filepath.Join(folder, example.File))
	}
}

// sendable reports whether curl has words for the request.
func sendable(r *example.Request) bool {
	return r.Socket == nil && len(r.Trailers) == 0 && r.SNI == ""
}

// outcome is what comes of a request, in a few words.
func outcome(r *example.Request) string {
	switch x := r.Expect; {
	case x.Fails == example.FailsConnect:
		return "the connection is refused"
	case x.Fails == example.FailsHandshake:
		return "the TLS handshake fails"
	case x.Fails != "":
		return "the connection is closed without an answer"
	case len(x.Shares) > 0:
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(x.Shares)) {
			parts = append(parts, fmt.Sprintf("%s %s times", name, x.Shares[name]))
		}
		return fmt.Sprintf("of %d, %s", r.Times, strings.Join(parts, " and "))
	case x.Backend != "" && x.Backend != example.None:
		return fmt.Sprintf("%d from %s", x.Status, x.Backend)
	default:
		return fmt.Sprint(x.Status)
	}
}

// curl is a command line that sends the request.
func curl(r *example.Request, clients string) string {
	method, scheme, authority, path := r.Target()
	host, _, _ := strings.Cut(authority, ":")
	words := []string{"curl", "-ik", "--path-as-is"}
	switch {
	case method == "HEAD":
		words = append(words, "-I")
	case method != "GET" || r.Body != "":
		words = append(words, "-X", method)
	}
	words = append(words, "--connect-to", fmt.Sprintf("%s::127.0.0.1:%d", host, r.Port))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		for _, v := range r.Headers[name] {
			words = append(words, "-H", quote(name+": "+v))
		}
	}
	switch {
	case r.Protocol == example.HTTP10:
		words = append(words, "--http1.0")
	case r.Protocol == example.HTTP2 && scheme == "http":
		words = append(words, "--http2-prior-knowledge")
	case r.Protocol == example.HTTP11 && scheme == "https":
		words = append(words, "--http1.1")
	}
	if r.Client != "" {
		words = append(words, "--cert", clientFile(clients, r.Client))
	}
	if r.Body != "" {
		words = append(words, "-d", quote(r.Body))
	}
	return strings.Join(append(words, quote(scheme+"://"+authority+path)), " ")
}

// quote makes one word of s for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// clientFile is where a client's certificate is, its key with it.
func clientFile(dir, name string) string { return filepath.Join(dir, name+".pem") }

// writeClients writes each client's certificate and key for curl.
func writeClients(clients map[string]*tls.Certificate, dir string) error {
	for name, c := range clients {
		key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		for _, block := range []*pem.Block{{Type: "CERTIFICATE", Bytes: c.Leaf.Raw}, {Type: "PRIVATE KEY", Bytes: key}} {
			if err := pem.Encode(&b, block); err != nil {
				return err
			}
		}
		if err := os.WriteFile(clientFile(dir, name), b.Bytes(), 0o600); err != nil {
			return err
		}
	}
	return nil
}
