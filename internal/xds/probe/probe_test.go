package probe

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/resource"
)

func TestListening(t *testing.T) {
	v4, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer v4.Close()
	port := func(l net.Listener) uint32 { return uint32(l.Addr().(*net.TCPAddr).Port) }
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := port(closed)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	wanted := []uint32{port(v4), free}
	want := []uint32{port(v4)}
	if v6, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		defer v6.Close()
		wanted, want = append(wanted, port(v6)), append(want, port(v6))
	}
	slices.Sort(wanted)
	slices.Sort(want)
	got, err := Listening(wanted)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("listening on %v (%v), want %v", got, err, want)
	}
}

func TestScanPorts(t *testing.T) {
	table := `  sl  local_address rem_address   st tx_queue rx_queue
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000
   1: 0100007F:1F91 0100007F:1234 01 00000000:00000000
   2: 00000000000000000000000000000000:1F92 00000000000000000000000000000000:0000 0A 0
   3: garbage
   4: 0100007F:XXXX 00000000:0000 0A
`
	got, err := scanPorts(strings.NewReader(table), []uint32{8080, 8081, 8082})
	if err != nil || !slices.Equal(got, []uint32{8080, 8082}) {
		t.Errorf("got %v, %v", got, err)
	}
}

// admin serves fixed answers by path, as Envoy's admin socket gives them.
func admin(t *testing.T, answers map[string]string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "admin.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := r.URL.Path
		if res := r.URL.Query().Get("resource"); res != "" {
			key = res
		}
		a, ok := answers[key]
		if !ok {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, a)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return socket
}

func TestWarming(t *testing.T) {
	stats := func(clusters, listeners int) string {
		return fmt.Sprintf(`{"stats":[{"name":"cluster_manager.warming_clusters","value":%d},`+
			`{"name":"listener_manager.total_listeners_warming","value":%d}]}`, clusters, listeners)
	}
	tests := map[string]struct {
		answers map[string]string
		want    []resource.Name
		fails   bool
	}{
		"nothing warms, and nothing more is asked": {map[string]string{"/stats": stats(0, 0)}, nil, false},
		"a cluster and one of two listeners warm": {map[string]string{
			"/stats":                   stats(1, 1),
			"dynamic_warming_clusters": `{"configs":[{"@type":"x","cluster":{"@type":"y","name":"ns/a/80"}}]}`,
			"dynamic_listeners":        `{"configs":[{"name":"l1","active_state":{}},{"name":"l2","warming_state":{"version_info":"1"}}]}`,
		}, []resource.Name{{TypeURL: envoy.ClusterType, Name: "ns/a/80"}, {TypeURL: envoy.ListenerType, Name: "l2"}}, false},
		"it was over before the names were asked for": {map[string]string{"/stats": stats(1, 0), "dynamic_warming_clusters": `{}`}, nil, false},
		"an answer that is no JSON is an error":       {map[string]string{"/stats": "no"}, nil, true},
		"an error is an error":                        {nil, nil, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Admin(admin(t, tt.answers))
			defer c.CloseIdleConnections()
			got, err := Warming(context.Background(), c)
			if !slices.Equal(got, tt.want) || (err != nil) != tt.fails {
				t.Errorf("warming %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestDrainTime(t *testing.T) {
	tests := map[string]struct {
		answer string
		want   time.Duration
		fails  bool
	}{
		"seconds":                {`{"command_line_options":{"drain_time":"600s"}}`, 10 * time.Minute, false},
		"none":                   {`{"command_line_options":{"drain_time":"0s"}}`, 0, false},
		"what says nothing":      {`{}`, 0, true},
		"what is no JSON":        {"no", 0, true},
		"what is no time at all": {`{"command_line_options":{"drain_time":"soon"}}`, 0, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := Admin(admin(t, map[string]string{"/server_info": tt.answer}))
			defer c.CloseIdleConnections()
			got, err := DrainTime(context.Background(), c)
			if got != tt.want || (err != nil) != tt.fails {
				t.Errorf("got %s, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestWarmingWithoutAdmin(t *testing.T) {
	c := Admin(filepath.Join(t.TempDir(), "none.sock"))
	if _, err := Warming(context.Background(), c); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
