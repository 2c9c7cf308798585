package envoyadmin_test

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/envoyadmin"
)

// start serves pages at a socket until the test ends.
func start(t *testing.T, pages http.HandlerFunc) *envoyadmin.Client {
	t.Helper()
	dir, err := os.MkdirTemp("", "ae") //nolint:usetesting // short: a socket is in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(pages)
	_ = srv.Listener.Close()
	srv.Listener = l
	srv.Start()
	t.Cleanup(srv.Close)
	c := envoyadmin.New(socket)
	t.Cleanup(c.Close)
	return c
}

func TestConnectionsAreThoseOfListeners(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`http.admin.downstream_cx_active: 1
http.web.downstream_cx_active: 7
listener.0.0.0.0_8080.downstream_cx_active: 5
listener.0.0.0.0_8080.worker_0.downstream_cx_active: 2
listener.0.0.0.0_8080.worker_1.downstream_cx_active: 3
listener.[__]_8443.downstream_cx_active: 2
listener.admin.downstream_cx_active: 1
listener.admin.main_thread.downstream_cx_active: 1
`))
	})
	if n, err := c.Connections(t.Context()); n != 7 || err != nil {
		t.Errorf("%d, %v; want 7", n, err)
	}
}

func TestRequestsAreThoseOfClients(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "filter=downstream_rq_active$" {
			t.Errorf("asked for %s", r.URL)
		}
		_, _ = w.Write([]byte("http.admin.downstream_rq_active: 1\nhttp.web.downstream_rq_active: 4\nhttp.api.downstream_rq_active: 3\n"))
	})
	if n, err := c.Requests(t.Context()); n != 7 || err != nil {
		t.Errorf("%d, %v; want 7", n, err)
	}
}

func TestStatisticsAreCutAtALine(t *testing.T) {
	const text = "# TYPE a gauge\na 1\nb 2\n"
	c := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
	for limit, want := range map[int]string{
		len(text) + 1: text, len(text): text, len(text) - 1: "# TYPE a gauge\na 1\n", 16: "# TYPE a gauge\n", 3: "",
	} {
		b := bytes.NewBufferString("before\n")
		whole, err := c.Prometheus(t.Context(), b, int64(limit))
		if err != nil || b.String() != "before\n"+want || whole != (want == text) {
			t.Errorf("at %d bytes: %q, whole %t, %v", limit, b, whole, err)
		}
	}
}

func TestAnEnvoyThatDoesNotRunIsAbsent(t *testing.T) {
	c := envoyadmin.New(filepath.Join(t.TempDir(), "none"))
	defer c.Close()
	if err := c.WindDown(t.Context()); !errors.Is(err, envoyadmin.ErrAbsent) {
		t.Errorf("got %v", err)
	}
	broken := start(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	if err := broken.WindDown(t.Context()); err == nil || errors.Is(err, envoyadmin.ErrAbsent) {
		t.Errorf("got %v", err)
	}
	huge := start(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(strings.Repeat("x", 2<<20))) })
	if _, err := huge.Connections(t.Context()); err == nil {
		t.Error("an answer without bounds was read")
	}
}

func TestCountersAreThoseThatCount(t *testing.T) {
	c := start(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/stats" || q.URL.Query().Get("filter") != `^a\.` {
			t.Errorf("it asks %s", q.URL)
		}
		_, _ = w.Write([]byte("a.b: 3\na.c: 0\na.d: P0(nan,1) P25(nan,1)\na.e: \"text\"\nodd\n[::1]: 7\n"))
	})
	got, err := c.Counters(t.Context(), `^a\.`)
	if want := (map[string]uint64{"a.b": 3, "[::1]": 7}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}
