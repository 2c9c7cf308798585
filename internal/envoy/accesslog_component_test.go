//go:build component

package envoy_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aether.io/aether/internal/envoy"
)

// logged returns the paths of the lines that were written, in order, each as table, path
// and status.
func logged(t *testing.T, file string) []string {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(raw)) {
		var l struct {
			Table  string
			Path   string
			Status int
		}
		if !strings.HasSuffix(line, "\n") {
			continue // being written
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, fmt.Sprintf("%s %s %d", l.Table, l.Path, l.Status))
	}
	return out
}

func TestTheRuntimeLayerDecidesWhatIsLogged(t *testing.T) {
	r := newRig(t)
	ports := []uint32{freePort(t), freePort(t)}
	tables := []string{"ns/gw.v1/80", "ns/gw.v1.80/https"}
	file := filepath.Join(r.dir, "access.log")
	r.serve(t, envoy.Runtime{})
	r.serve(t, cluster("ns/a/80", envoy.HTTP1, backend(t, "a", false))...)
	for i, table := range tables {
		r.serve(t, scopes(table, true, []envoy.VirtualHost{
			{Host: "a.example", Routes: []envoy.Route{{Name: "ns/a/0/0", Path: prefix("/a"), Backends: to("ns/a/80")}}},
		})...)
		r.serve(t, envoy.Listener{
			Name: table, Address: "127.0.0.1", Port: ports[i],
			Chains: []envoy.Chain{{Name: table, PerHost: true, AccessLog: file}},
		})
		r.awaitListener(t, ports[i])
	}
	awaitRuntime := func(logs map[string]envoy.AccessLog) {
		t.Helper()
		r.serve(t, envoy.Runtime{AccessLogs: logs})
		await(t, "the runtime layer", func() bool {
			var page struct {
				Entries map[string]struct {
					Final string `json:"final_value"`
				}
			}
			_ = json.Unmarshal([]byte(r.get("/runtime")), &page)
			for table, log := range logs {
				enabled := "0"
				if log.Enabled {
					enabled = "100"
				}
				if page.Entries["aether.access_log.enabled."+table].Final != enabled ||
					page.Entries["aether.access_log.success_percent."+table].Final != fmt.Sprint(log.SuccessSample) {
					return false
				}
			}
			return true
		}, func() string { return r.get("/runtime") })
	}
	get := func(port uint32, path string, headers ...string) {
		t.Helper()
		ask(t, port, append([]string{"GET " + path + " HTTP/1.1", "Host: a.example"}, headers...)...)
	}
	all := func(phase string) {
		for i, port := range ports {
			get(port, fmt.Sprintf("/a/%s-ok-%d?secret=1", phase, i))
			get(port, fmt.Sprintf("/a/%s-missing-%d?status=404", phase, i))
			get(port, fmt.Sprintf("/a/%s-failed-%d?status=503", phase, i))
			get(port, fmt.Sprintf("/a/%s-grpc-ok-%d?grpc=0", phase, i), "Content-Type: application/grpc")
			get(port, fmt.Sprintf("/a/%s-grpc-denied-%d?grpc=7", phase, i), "Content-Type: application/grpc")
			get(port, fmt.Sprintf("/a/%s-grpc-failed-%d?grpc=13", phase, i), "Content-Type: application/grpc+proto")
			get(port, fmt.Sprintf("/a/%s-not-grpc-%d?grpc=13", phase, i))
			get(port, fmt.Sprintf("/a/%s-answered-plainly-%d", phase, i), "Content-Type: application/grpc")
		}
	}
	// Until the layer comes nothing is logged; then failures of the first table; then
	// everything of the second.
	all("none")
	awaitRuntime(map[string]envoy.AccessLog{tables[0]: {Enabled: true}, tables[1]: {SuccessSample: 100}})
	all("failures")
	awaitRuntime(map[string]envoy.AccessLog{tables[0]: {SuccessSample: 100}, tables[1]: {Enabled: true, SuccessSample: 100}})
	all("everything")
	want := []string{
		"ns/gw.v1/80 /a/failures-failed-0 503",
		"ns/gw.v1/80 /a/failures-grpc-failed-0 200",
		"ns/gw.v1.80/https /a/everything-ok-1 200",
		"ns/gw.v1.80/https /a/everything-missing-1 404",
		"ns/gw.v1.80/https /a/everything-failed-1 503",
		"ns/gw.v1.80/https /a/everything-grpc-ok-1 200",
		"ns/gw.v1.80/https /a/everything-grpc-denied-1 200",
		"ns/gw.v1.80/https /a/everything-grpc-failed-1 200",
		"ns/gw.v1.80/https /a/everything-not-grpc-1 200",
		"ns/gw.v1.80/https /a/everything-answered-plainly-1 200",
	}
	slices.Sort(want)
	var got []string
	await(t, "the last line", func() bool {
		got = logged(t, file)
		return len(got) >= len(want)
	}, func() string { return strings.Join(got, "\n") })
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("logged\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if raw, _ := os.ReadFile(file); strings.Contains(string(raw), "secret") {
		t.Errorf("the log holds a query:\n%s", raw)
	} else {
		t.Logf("a line: %s", strings.SplitN(string(raw), "\n", 2)[0])
	}
}
