//go:build component

package envoy_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/envoy"
)

func TestATableThatGrowsPastOneScopeLosesNoRequest(t *testing.T) {
	r := newRig(t)
	port := freePort(t)
	const table = "ns/gw/80"
	hosts := []envoy.VirtualHost{
		{Host: "a.example", Routes: []envoy.Route{{Name: "ns/a/0/0", Backends: to("ns/a/80")}}},
		{Host: "*.wild.example", Routes: []envoy.Route{{Name: "ns/w/0/0", Backends: to("ns/a/80")}}},
	}
	listener := func(perHost bool) envoy.Listener {
		return envoy.Listener{Name: table, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: table, PerHost: perHost}}}
	}
	r.serve(t, append(cluster("ns/a/80", envoy.HTTP1, backend(t, "a", false)), envoy.Runtime{})...)
	r.serve(t, append(scopes(table, false, hosts), listener(false))...)
	r.awaitListener(t, port)

	stop := make(chan struct{})
	var clients sync.WaitGroup
	lost := make(chan int, 1)
	for _, host := range []string{"a.example", "x.wild.example", "A.example:80"} {
		clients.Go(func() { // until stop
			for {
				select {
				case <-stop:
					return
				default:
				}
				if status := status(port, host); status != http.StatusOK {
					select {
					case lost <- status:
					default:
					}
				}
			}
		})
	}
	r.serve(t, scopes(table, true, hosts)...)
	r.serve(t, listener(true))
	await(t, "the miss path", func() bool { return strings.Contains(r.get("/config_dump?resource=dynamic_listeners"), "aether.miss") },
		func() string { return r.get("/config_dump?resource=dynamic_listeners") })
	for _, host := range []string{"a.example", "x.wild.example", "A.example:80"} {
		if got := status(port, host); got != http.StatusOK {
			t.Errorf("%s: %d after it grew", host, got)
		}
	}
	close(stop)
	clients.Wait()
	select {
	case s := <-lost:
		t.Errorf("a request got %d", s)
	default:
	}
}

// status is one request's status on a connection of its own, 0 if it got none.
func status(port uint32, host string) int {
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func TestAWebSocketIsUpgradedAndOutlivesAScopeUpdate(t *testing.T) {
	r := newRig(t)
	port := freePort(t)
	const table = "ns/gw/80"
	address := listen(t, "127.0.0.1", &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { echoUpgraded(w) })})
	hosts := []envoy.VirtualHost{{Host: "a.example", Routes: []envoy.Route{{Name: "ns/a/0/0", Path: prefix("/ws"), Backends: to("ns/a/80")}}}}
	r.serve(t, append(cluster("ns/a/80", envoy.HTTP1, address), envoy.Runtime{})...)
	r.serve(t, scopes(table, true, hosts)...)
	r.serve(t, envoy.Listener{Name: table, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: table, PerHost: true}}})
	r.awaitListener(t, port)

	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: A.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("got %v, %v", resp, err)
	}
	say := func(word string) {
		t.Helper()
		_, _ = io.WriteString(conn, word)
		got := make([]byte, len(word))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != word {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	say("before")
	hosts[0].Routes = nil
	r.serve(t, scopes(table, true, hosts)...)
	await(t, "the route to go", func() bool {
		return !strings.Contains(r.get("/config_dump"), "ns/a/0/0")
	}, func() string { return r.get("/config_dump") })
	say("after")
}
