package webhook

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	configv1 "aether.io/aether/api/config/v1"
)

// A review takes a few times its size while it is judged, whatever is in it.
func TestWhatAReviewTakesIsBoundedByItsSize(t *testing.T) {
	keys := func(bytes int) string { // as many fields as there is room for
		var b strings.Builder
		for i := 0; b.Len() < bytes; i++ {
			fmt.Fprintf(&b, `"%x":0,`, i)
		}
		return b.String() + `"z":0`
	}
	with := func(metadata, spec string) []byte {
		return []byte(`{"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":"default"` + metadata + `},"spec":` + spec + `}`)
	}
	marshal := func(r *admissionv1.AdmissionReview) string {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const half = 3 << 19 // what etcd takes
	j := judge{system: on, namespace: "aether-system", release: func() *configv1.MeshConfig { return nil }}
	annotations := `,"annotations":{` + strings.ReplaceAll(keys(half), ":0", `:""`) + "}"
	plain := marshal(review("CREATE", with("", "{}"), nil))
	for name, body := range map[string]string{
		"unknown fields":             marshal(review("CREATE", with("", "{"+keys(half)+"}"), nil)),
		"two that differ":            marshal(review("UPDATE", with("", "{"+keys(half)+"}"), with("", "{"+keys(half-100)+"}"))),
		"two that are the same":      marshal(review("UPDATE", with("", "{"+keys(half)+"}"), with("", "{"+keys(half)+"}"))),
		"a bad spec after it":        marshal(review("UPDATE", with("", `{"proxy":7}`), with("", "{"+keys(half)+"}"))),
		"one under another name too": marshal(review("CREATE", []byte(strings.Replace(string(with("", "{"+keys(half)+"}")), `"spec"`, `"SPEC":{},"spec"`, 1)), nil)),
		"annotations":                marshal(review("UPDATE", with(annotations, "{}"), with("", "{}"))),
		"what nobody reads":          strings.Replace(plain, `"request":{`, `"request":{"userInfo":{"extra":{`+strings.ReplaceAll(keys(5*half/3), ":0", ":[]")+`}},`, 1),
		"a name":                     marshal(review("CREATE", []byte(strings.Replace(string(with("", "{}")), "default", strings.Repeat("é", half/2), 1)), nil)),
	} {
		t.Run(name, func(t *testing.T) {
			if len(body) > maxBody {
				t.Fatalf("a body of %d bytes", len(body))
			}
			text := []byte(body)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, _ = j.review(text)
			runtime.ReadMemStats(&after)
			took := after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes for each of %d", took/uint64(len(body)), len(body))
			if most := uint64(6 * len(body)); took > most {
				t.Errorf("a review of %d bytes took %d, want %d at most", len(body), took, most)
			}
		})
	}
}

// A spec of no ordinary size is refused, and one that is there already can be lived with.
func TestASpecOfNoOrdinarySizeIsRefused(t *testing.T) {
	large := object("shop", "default", fmt.Sprintf(`{"padding":%q}`, strings.Repeat("x", maxSpec)))
	const says = "spec: has 262158 bytes, want 262144 at most"
	r := start(t, Config{System: on})
	if got := r.ask(review("CREATE", large, nil)); got.Allowed || got.Result.Message != says {
		t.Errorf("made: %+v", got)
	}
	if got := r.ask(review("UPDATE", large, object("shop", "default", "{}"))); got.Allowed || got.Result.Message != says {
		t.Errorf("changed: %+v", got)
	}
	if got := r.ask(review("UPDATE", large, large)); !got.Allowed || len(got.Warnings) != 1 || got.Warnings[0] != says {
		t.Errorf("left as it was: %+v", got)
	}
	if got := r.ask(review("UPDATE", object("shop", "default", "{}"), large)); !got.Allowed || len(got.Warnings) != 0 {
		t.Errorf("mended: %+v", got)
	}
}
