// Package check holds the rules a value must pass before it goes into an Envoy resource,
// beyond those generated from Envoy's own protos: what would be refused later, by an
// Envoy that names no culprit, is refused here by name. Errors say what is wanted and
// leave the place to the caller.
package check

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
)

// maxHost is the length of the longest DNS name.
const maxHost = 253

// Host wants a lower-case DNS name (RFC 1123), "*." before one, or "*".
func Host(host string) error {
	if host == "*" {
		return nil
	}
	name := strings.TrimPrefix(host, "*.")
	if name == "" || len(host) > maxHost {
		return errors.New("want 1 to 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("label %q: want 1 to 63 characters, no hyphen first or last", label)
		}
		if i := strings.IndexFunc(label, func(r rune) bool { return !isLowerAlphanumeric(r) && r != '-' }); i >= 0 {
			return fmt.Errorf("label %q: want lower-case letters, digits and hyphens", label)
		}
	}
	return nil
}

func isLowerAlphanumeric(r rune) bool { return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }

// Table wants a name that is safe inside a scope key, where "|" and ":" separate,
// and inside Envoy's format strings, where "%" begins a command.
func Table(name string) error {
	ok := func(r rune) bool {
		return isLowerAlphanumeric(r) || r >= 'A' && r <= 'Z' || strings.ContainsRune("-._/", r)
	}
	if name == "" {
		return errors.New("is empty")
	}
	if i := strings.IndexFunc(name, func(r rune) bool { return !ok(r) }); i >= 0 {
		return errors.New(`want letters, digits and "-._/"`)
	}
	return nil
}

// Name wants a name a person can read in a config dump or a log line.
func Name(name string) error {
	if name == "" {
		return errors.New("is empty")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }) {
		return errors.New("has a space or a character that does not print")
	}
	return nil
}

// Token wants an HTTP token (RFC 9110, 5.6.2).
func Token(s string) error {
	if s == "" {
		return errors.New("is empty")
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return fmt.Errorf("character %q is not allowed in an HTTP token", c)
		}
	}
	return nil
}

// IP wants an address without a zone.
func IP(s string) error {
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return err
	}
	if ip.Zone() != "" {
		return errors.New("a zone is not supported")
	}
	return nil
}

// Port wants one that can be bound or connected to.
func Port(p uint32) error {
	if p < 1 || p > math.MaxUint16 {
		return errors.New("want 1 to 65535")
	}
	return nil
}

// maxDuration keeps a duration far from what Envoy refuses with the whole response.
const maxDuration = 24 * time.Hour

// Duration wants one that Envoy can count with.
func Duration(d time.Duration) error {
	if d < 0 || d > maxDuration || d%time.Millisecond != 0 {
		return fmt.Errorf("want whole milliseconds, 0 to %s", maxDuration)
	}
	return nil
}

// Duplicate returns a value that is in s twice.
func Duplicate(s []string) (string, bool) {
	sorted := slices.Sorted(slices.Values(s))
	for i := 1; i < len(sorted); i++ {
		if sorted[i] == sorted[i-1] {
			return sorted[i], true
		}
	}
	return "", false
}
