//go:build component

package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
)

// accept takes connections until the test ends and hands each to serve.
func accept(t *testing.T, serve func(net.Conn)) uint32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the listener
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
			serve(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return uint32(l.Addr().(*net.TCPAddr).Port)
}

// Whatever becomes of the collector, every request is answered, memory stays, and a metric
// says what is wrong.
func TestACollectorThatIsNoneCostsNoRequest(t *testing.T) {
	const n = 400
	for name, c := range map[string]struct {
		collector func(t *testing.T) envoy.Collector
		metric    string // that says so
		wrong     func(value int) bool
	}{
		"it is down": {
			func(t *testing.T) envoy.Collector {
				return envoy.Collector{Host: "127.0.0.1", Port: freePort(t)}
			},
			"upstream_cx_connect_fail", func(v int) bool { return v > 0 },
		},
		"it takes connections and never answers": {
			func(t *testing.T) envoy.Collector {
				return envoy.Collector{Host: "127.0.0.1", Port: accept(t, func(net.Conn) {})}
			},
			"upstream_rq_max_duration_reached", func(v int) bool { return v > 0 },
		},
		"its name does not resolve": {
			func(*testing.T) envoy.Collector { return envoy.Collector{Host: "collector.invalid", Port: 4317} },
			"membership_total", func(v int) bool { return v == 0 },
		},
		"it speaks another protocol": {
			func(t *testing.T) envoy.Collector {
				return envoy.Collector{Host: "127.0.0.1", Port: accept(t, func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				})}
			},
			"upstream_cx_protocol_error", func(v int) bool { return v > 0 },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			port := telemetry(t, r, c.collector(t))
			took := func() time.Duration {
				t.Helper()
				began := time.Now()
				if got := fetch(t, port, n, "/a"); got[http.StatusOK] != n {
					t.Fatalf("answers: %v", got)
				}
				return time.Since(began)
			}
			without := took()
			before := r.stat(t, "server.memory_allocated")
			r.runtime(t, layer(true, 100, 1))
			with := took()
			took()
			after := r.stat(t, "server.memory_allocated")
			// A worker may keep 1024 spans, and 64 requests be under way.
			if grown := after - before; grown > 32<<20 {
				t.Errorf("Envoy has %d bytes more than before", grown)
			}
			metric := "cluster." + envoy.CollectorName + "." + c.metric
			await(t, metric, func() bool { return c.wrong(r.stat(t, metric)) }, func() string { return r.get("/stats?filter=aether-otel|open_?telemetry") })
			t.Logf("%d requests: %s while nothing is exported, %s while it is; %d bytes more", n, without, with, after-before)
		})
	}
}

// streamer is a server of echoing WebSockets, whose other answers are a line for each text
// that it is given.
func streamer(t *testing.T) (envoy.Address, chan<- string) {
	t.Helper()
	next := make(chan string)
	return listen(t, "127.0.0.1", &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.Header.Get("Upgrade") != "" {
			echoUpgraded(w)
			return
		}
		control := http.NewResponseController(w)
		_ = control.Flush()
		for text := range next { // until the test closes it
			_, _ = io.WriteString(w, text+"\n")
			_ = control.Flush()
		}
	})}), next
}

// opened sends a request and returns its answer's header and what reads on.
func opened(t *testing.T, port uint32, lines ...string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(3 * patience))
	_, _ = io.WriteString(conn, strings.Join(append(lines, "Host: a.example", "", ""), "\r\n"))
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, in, resp
}

func TestAWebSocketAndADownloadOutliveEveryEdit(t *testing.T) {
	r := newRig(t)
	port := telemetry(t, r, envoy.Collector{Host: "127.0.0.1", Port: freePort(t)})
	to, next := streamer(t)
	r.serve(t, envoy.Endpoints{Cluster: "shop/cart/80", Addresses: []envoy.Address{to}})
	await(t, "the endpoint", func() bool { return strings.Contains(r.get("/clusters"), fmt.Sprintf("127.0.0.1:%d::", to.Port)) },
		func() string { return r.get("/clusters") })
	socket, echoed, up := opened(t, port, "GET /a/ws HTTP/1.1", "Connection: Upgrade", "Upgrade: websocket")
	if up.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("the WebSocket got %d", up.StatusCode)
	}
	_, _, download := opened(t, port, "GET /a/download HTTP/1.1")
	defer download.Body.Close()
	defer close(next) // before, because closing reads on to the end
	lines := bufio.NewReader(download.Body)
	for i := range 20 {
		l := layer(i%2 == 0, uint32(i*5), float64(i%3)/2)
		l.PodStats = map[string]bool{telemetryTable: i%4 == 0}
		r.runtime(t, l)
		word := fmt.Sprintf("edit %d\n", i)
		next <- strings.TrimSuffix(word, "\n")
		if got, err := lines.ReadString('\n'); got != word {
			t.Fatalf("the download after edit %d: %q, %v", i, got, err)
		}
		_, _ = io.WriteString(socket, word)
		if got, err := echoed.ReadString('\n'); got != word {
			t.Fatalf("the WebSocket after edit %d: %q, %v", i, got, err)
		}
	}
	for _, name := range []string{"listener_modified", "listener_in_place_updated"} {
		if n := r.stat(t, "listener_manager."+name); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
}

// pods are endpoints that are all one server, on addresses of their own.
func pods(server envoy.Address, prefix string, n int) (list []envoy.Address) {
	for i := range n {
		list = append(list, envoy.Address{
			IP: fmt.Sprintf("127.0.1.%d", i+1), Port: server.Port, Pod: fmt.Sprintf("%s-%d", prefix, i), Namespace: "shop",
		})
	}
	return list
}

func TestSeriesByPodGoWhenPodsGo(t *testing.T) {
	r := newRig(t, func(c *bootstrap.Config) { c.EvictStats = time.Second })
	port := telemetry(t, r, envoy.Collector{Host: "127.0.0.1", Port: freePort(t)})
	server := listen(t, "0.0.0.0", &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})})
	series := func(of string) int {
		n := 0
		for line := range strings.Lines(r.get("/stats/prometheus?filter=aether_pod")) {
			if strings.HasPrefix(line, "envoy_aether_pod_requests_total{") && strings.Contains(line, `destination_pod="`+of) &&
				strings.Contains(line, `source_pod="test"`) && strings.Contains(line, `destination_namespace="shop"`) {
				n++
			}
		}
		return n
	}
	show := func() string { return r.get("/stats/prometheus?filter=aether_pod") }

	r.serve(t, envoy.Endpoints{Cluster: "shop/cart/80", Addresses: pods(server, "old", 200)})
	await(t, "the endpoints", func() bool { return strings.Contains(r.get("/clusters"), "127.0.1.200:") }, func() string { return r.get("/clusters") })
	fetch(t, port, 100, "/a")
	if n := series("old"); n != 0 {
		t.Errorf("%d series while it is off", n)
	}
	r.runtime(t, envoy.Runtime{PodStats: map[string]bool{telemetryTable: true}})
	await(t, "series of most pods", func() bool {
		fetch(t, port, 400, "/a")
		return series("old") > 100
	}, show)
	r.serve(t, envoy.Endpoints{Cluster: "shop/cart/80", Addresses: pods(server, "new", 3)})
	await(t, "series of the new pods alone", func() bool {
		fetch(t, port, 40, "/a")
		return series("old") == 0 && series("new") == 3
	}, show)
}
