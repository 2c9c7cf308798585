package hcm

import (
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"aether.io/aether/internal/envoy/wire"
)

// websocket is the one protocol that connections are upgraded to.
const websocket = "websocket"

// otherUpgrades matches the protocols of an Upgrade header that are not known, which a
// server ignores (RFC 9110, 7.8); Envoy would refuse the request with 403.
func otherUpgrades() []*matcherv3.StringMatcher {
	return []*matcherv3.StringMatcher{wire.String(otherThan(websocket), true)}
}

// otherThan is an expression for every text but the word, which is in lower case, in any
// letter case. RE2 has no word for it: what differs does so from some letter on.
func otherThan(word string) string {
	var b strings.Builder
	for _, letter := range word {
		// The letter and what follows, or another letter and anything, or the end.
		b.WriteString("([^" + string(letter) + strings.ToUpper(string(letter)) + "].*|[" + string(letter) + strings.ToUpper(string(letter)) + "]")
	}
	b.WriteString(".+")
	b.WriteString(strings.Repeat(")?", len(word)))
	return b.String()
}
