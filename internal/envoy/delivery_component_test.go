//go:build component

package envoy_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"aether.io/aether/internal/delivery"
	"aether.io/aether/internal/envoy"
	"aether.io/aether/internal/envoy/bootstrap"
	"aether.io/aether/internal/envoyadmin"
	"aether.io/aether/internal/test/collector"
)

// Whatever is wrong with a collector, Envoy's own statistics tell what it is.
func TestWhatIsWrongWithACollectorIsToldByEnvoysStatistics(t *testing.T) {
	plain := func(port uint32) (envoy.Collector, []model) {
		return envoy.Collector{Host: "127.0.0.1", Port: port}, nil
	}
	withTLS := func(t *testing.T) (envoy.Collector, []model) {
		return target(collector.Start(t, collector.Config{TLS: true}))
	}
	for name, c := range map[string]struct {
		collector func(t *testing.T) (envoy.Collector, []model)
		want      string // "": it arrives
	}{
		"nothing": {withTLS, ""},
		"it is down": {
			func(t *testing.T) (envoy.Collector, []model) { return plain(freePort(t)) }, "CollectorUnreachable: it cannot be connected to",
		},
		"its name does not resolve": {
			func(*testing.T) (envoy.Collector, []model) {
				return envoy.Collector{Host: "collector.invalid", Port: 4317}, nil
			}, "CollectorUnreachable: its name does not resolve",
		},
		"it never answers": {
			func(t *testing.T) (envoy.Collector, []model) { return plain(accept(t, func(net.Conn) {})) }, "CollectorNotAnswering: it does not answer in time",
		},
		"it speaks another protocol": {
			func(t *testing.T) (envoy.Collector, []model) {
				return plain(accept(t, func(c net.Conn) {
					_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
				}))
			}, "CollectorRefuses: it does not speak OTLP",
		},
		"it knows nothing of logs and traces": {
			func(t *testing.T) (envoy.Collector, []model) {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				s := grpc.NewServer()
				done := make(chan struct{})
				go func() { // ends with Stop
					defer close(done)
					_ = s.Serve(l)
				}()
				t.Cleanup(func() {
					s.Stop()
					<-done
				})
				return plain(uint32(l.Addr().(*net.TCPAddr).Port))
			}, "CollectorRefuses: it answers with errors",
		},
		"it wants TLS": {
			func(t *testing.T) (envoy.Collector, []model) {
				to, _ := withTLS(t)
				to.TLS = nil
				return to, nil
			}, "CollectorRefuses: it closes connections",
		},
		"it has no TLS": {
			func(t *testing.T) (envoy.Collector, []model) {
				to, trust := withTLS(t)
				to.Port = uint32(collector.Start(t, collector.Config{}).Port)
				return to, trust
			}, "CollectorNotVerified: it does not speak TLS",
		},
		"its certificate is another authority's": {
			func(t *testing.T) (envoy.Collector, []model) {
				to, _ := withTLS(t)
				_, others := withTLS(t)
				return to, others
			}, "CollectorNotVerified: its certificate is of none of the authorities",
		},
		"its certificate is for another name": {
			func(t *testing.T) (envoy.Collector, []model) {
				to, trust := withTLS(t)
				to.TLS = envoy.CollectorTLS("other.example", "")
				return to, trust
			}, "CollectorNotVerified: its certificate is for another name",
		},
		"there are no authorities": {
			func(t *testing.T) (envoy.Collector, []model) {
				to, _ := withTLS(t)
				return to, nil
			}, "CollectorCAMissing: there are no authorities",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to, more := c.collector(t)
			r := newRig(t, func(b *bootstrap.Config) {
				if to.TLS == nil { // with a ConfigMap's authorities metrics are not exported
					b.Collector = &to
				}
			})
			admin := envoyadmin.New(r.dir + "/admin.sock")
			defer admin.Close()
			w, err := delivery.New(delivery.Config{
				Envoy: admin, Exporting: func() bool { return true }, Every: 100 * time.Millisecond, Confirm: 300 * time.Millisecond,
			})
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- w.Run(t.Context()) }() // ends before cleanups
			t.Cleanup(func() { <-done })
			port := telemetry(t, r, to, more...)
			r.runtime(t, layer(true, 100, 1))
			want := "ok "
			if c.want != "" {
				want = "failed " + c.want
			}
			await(t, want, func() bool {
				fetch(t, port, 4, "/a")
				list := w.Checks()
				return len(list) == 1 && strings.HasPrefix(list[0].State+" "+list[0].Reason, want)
			}, func() string {
				return r.get("/stats?usedonly&filter=aether-otel|open_?telemetry")
			})
		})
	}
}
