package readiness_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/readiness"
)

func TestWhatIsNotReadyIsSaid(t *testing.T) {
	var source error
	h := readiness.Handler(
		readiness.Part{Name: "ca", Lacks: func() error { return nil }},
		readiness.Part{Name: "source", Lacks: func() error { return source }},
	)
	ask := func() (int, readiness.Report) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
		var r readiness.Report
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", w.Body, err)
		}
		return w.Code, r
	}
	source = errors.New("Gateways are not listed yet")
	code, got := ask()
	want := readiness.Report{Checks: []readiness.Check{
		{Name: "ca", State: readiness.OK},
		{Name: "source", State: readiness.Failed, Reason: "Gateways are not listed yet"},
	}}
	if diff := cmp.Diff(want, got); diff != "" || code != http.StatusServiceUnavailable {
		t.Errorf("%d (-want +got):\n%s", code, diff)
	}
	source = nil
	if code, got := ask(); code != http.StatusOK || !got.Ready {
		t.Errorf("%d %+v, want it ready", code, got)
	}
}
