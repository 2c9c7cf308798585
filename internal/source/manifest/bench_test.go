package manifest

import (
	"fmt"
	"testing"
	"time"

	"aether.io/aether/internal/crd"
)

func simpleRoute(i int) []byte {
	return fmt.Appendf(nil, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r%d}
spec:
  parentRefs: [{name: web}]
  hostnames: [r%d.example.com]
  rules:
  - matches: [{path: {type: PathPrefix, value: /}}]
    backendRefs: [{name: s%d, port: 80}]
`, i, i, i%50)
}

func benchDecoder(b *testing.B) (decode func(i int)) {
	b.Helper()
	v, err := crd.New()
	if err != nil {
		b.Fatal(err)
	}
	d := NewDecoder(v)
	return func(i int) {
		docs, err := Parse(simpleRoute(i))
		if err != nil {
			b.Fatal(err)
		}
		if a := d.Decode(b.Context(), &docs[0], nil); a.Object == nil {
			b.Fatal(a.Findings)
		}
	}
}

// BenchmarkRouteAtRest is BenchmarkHTTPRoute in a process that does nothing most of the time, and
// finds the processor's caches full of what others do.
func BenchmarkRouteAtRest(b *testing.B) {
	decode := benchDecoder(b)
	decode(0)
	others := make([]byte, 16<<20)
	var sum, least time.Duration
	i := 0
	for b.Loop() {
		i++
		<-time.After(20 * time.Millisecond)
		for at := 0; at < len(others); at += 64 {
			others[at]++
		}
		began := time.Now()
		decode(i)
		took := time.Since(began)
		sum += took
		if least == 0 || took < least {
			least = took
		}
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-mean")
	b.ReportMetric(float64(least.Microseconds()), "µs-least")
}
