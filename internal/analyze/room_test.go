package analyze_test

import (
	"fmt"
	"strings"
	"testing"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
)

// aRouteThatTakesTooMuch is one that the definitions admit: 16 hosts, 128 regular expressions.
func aRouteThatTakesTooMuch(t *testing.T) []analyze.Finding {
	var b strings.Builder
	b.WriteString(gatewayOfOne + `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  parentRefs: [{name: web}]
  hostnames: [`)
	for i := range 16 {
		fmt.Fprintf(&b, "h%d.example.com, ", i)
	}
	b.WriteString("]\n  rules:\n")
	for i := range 16 {
		b.WriteString("  - matches:\n")
		for j := range 8 {
			fmt.Fprintf(&b, "    - {path: {type: RegularExpression, value: '/%d/%d/%s'}}\n", i, j, strings.Repeat(".{1000}", 4))
		}
	}
	return run(t, config(code.Anywhere), b.String())
}
