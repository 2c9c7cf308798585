//go:build component

package backends_test

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// slice is an EndpointSlice of IPv4 endpoints given as YAML.
func slice(name, service string, at int, endpoints string) string {
	return fmt.Sprintf(`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %s, labels: {kubernetes.io/service-name: %s}}
addressType: IPv4
ports: [{name: web, port: %d}]
endpoints: [%s]
`, name, service, at, endpoints)
}

func TestServicesOfEverySort(t *testing.T) {
	a, h2 := serve(t, "a", false, nil), serve(t, "h2", true, nil)
	var text strings.Builder
	add := func(name, manifests string) { text.WriteString(manifests + route(name, name)) }
	add("h2c", service("h2c", "kubernetes.io/h2c", h2.port, ready))
	add("ws", service("ws", "kubernetes.io/ws", a.port, ready))
	add("unknown", service("unknown", "mysql", a.port, ready))
	add("empty", service("empty", "http", a.port, ""))
	add("not-ready", service("not-ready", "http", a.port, `{addresses: [127.0.0.1], conditions: {ready: false, serving: false}}`))
	add("starting", service("starting", "http", a.port, `{addresses: [127.0.0.1], conditions: {ready: false, serving: true}}`))
	add("leaving", service("leaving", "http", a.port, `{addresses: [127.0.0.1], conditions: {ready: false, serving: true, terminating: true}}`))
	add("one-leaves", service("one-leaves", "http", a.port, ready)+
		slice("one-leaves-2", "one-leaves", h2.port, `{addresses: [127.0.0.1], conditions: {ready: false, serving: true, terminating: true}}`))
	add("other-port", service("other-port", "http", a.port, "")+strings.ReplaceAll(slice("other-port-2", "other-port", a.port, ready), "name: web", "name: other"))
	add("headless", "---\napiVersion: v1\nkind: Service\nmetadata: {name: headless}\nspec: {clusterIP: None, ports: [{name: web, port: 80, targetPort: 9999}]}\n"+slice("headless", "headless", a.port, ready))
	add("external", "---\napiVersion: v1\nkind: Service\nmetadata: {name: external}\nspec: {type: ExternalName, externalName: localhost, ports: [{name: web, port: 80}]}\n")
	add("dual", service("dual", "http", a.port, ready)+strings.Replace(slice("dual-6", "dual", a.port, `{addresses: ["::1"], conditions: {ready: false}}`), "IPv4", "IPv6", 1))
	w := start(t, map[string]string{"all.yaml": text.String()})
	for host, want := range map[string]struct {
		code    int
		backend string
		says    string
	}{
		"h2c":        {200, "h2", "ResolvedRefs"},
		"ws":         {200, "a", "ResolvedRefs"},
		"unknown":    {500, "", "UnsupportedProtocol"},
		"empty":      {503, "", "ResolvedRefs"},
		"not-ready":  {503, "", "ResolvedRefs"},
		"starting":   {503, "", "ResolvedRefs"},
		"leaving":    {200, "a", "ResolvedRefs"},
		"one-leaves": {200, "a", "ResolvedRefs"},
		"other-port": {503, "", "ResolvedRefs"},
		"headless":   {200, "a", "ResolvedRefs"},
		"external":   {500, "", "InvalidKind"},
		"dual":       {200, "a", "ResolvedRefs"},
		"nowhere":    {404, "", ""},
	} {
		for range 4 {
			if got := w.answers(port, host, want.code); want.backend != "" && got.Backend != want.backend {
				t.Errorf("%s: %q answered, want %q", host, got.Backend, want.backend)
			}
		}
		if want.says != "" {
			w.says("httproute", host, want.says)
		}
	}
}

// traffic asks one host without a pause from several clients until stopped.
type traffic struct {
	stop    chan struct{}
	clients sync.WaitGroup
	mu      sync.Mutex
	codes   []int // in the order in which answers came, without repetition
	sums    map[int]int
}

func (w *world) traffic(host string) *traffic {
	f := &traffic{stop: make(chan struct{}), sums: map[int]int{}}
	for range 4 {
		f.clients.Go(func() { // until stop
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer client.CloseIdleConnections()
			for {
				select {
				case <-f.stop:
					return
				default:
				}
				code, _ := w.Get(w.t.Context(), client, port, host+".example.com", "/")
				f.add(code)
			}
		})
	}
	return f
}

func (f *traffic) add(code int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sums[code]++
	if len(f.codes) == 0 || f.codes[len(f.codes)-1] != code {
		f.codes = append(f.codes, code)
	}
}

// end stops the clients and returns how many answers of each code there were.
func (f *traffic) end() map[int]int {
	close(f.stop)
	f.clients.Wait()
	return f.sums
}

func TestEndpointsComeAndGoWithoutALostRequest(t *testing.T) {
	servers := []*server{serve(t, "0", false, nil), serve(t, "1", false, nil), serve(t, "2", false, nil)}
	only := func(i int) string { return service("a", "http", servers[i].port, ready) }
	w := start(t, map[string]string{"route.yaml": route("a", "a"), "a.yaml": only(0)})
	w.answers(port, "a", 200)

	// A request that is under way when its endpoint goes is answered to its end.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url(port)+"/hold", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Host = "a.example.com"
	slow, err := w.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Body.Close()

	f := w.traffic("a")
	for step := range 60 {
		i := (step + 1) % len(servers)
		w.write("a.yaml", only(i))
		w.eventually(fmt.Sprintf("step %d: %d answers", step, i), func() (bool, string) {
			_, got := w.ask(port, "a", "/")
			return got.Backend == fmt.Sprint(i), got.Backend
		})
	}
	if sums := f.end(); len(sums) != 1 || sums[200] == 0 {
		t.Errorf("answers by code: %v, want 200 alone", sums)
	}
	close(servers[0].hold)
	var body bytes.Buffer
	if _, err := body.ReadFrom(slow.Body); err != nil || !strings.Contains(body.String(), `"Backend":"0"`) {
		t.Errorf("the request that was under way got %q, %v", body.String(), err)
	}
}

func TestARevokedGrantEndsItsRequestsAndNothingElse(t *testing.T) {
	const grant = `apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata: {name: shop, namespace: vault}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: default}]
  to: [{group: "", kind: Service, name: a}]
`
	a := serve(t, "a", false, nil)
	w := start(t, map[string]string{
		"all.yaml":   route("a", "vault/a") + service("vault/a", "http", a.port, ready) + route("b", "b") + service("b", "http", a.port, ready),
		"grant.yaml": grant,
	})
	w.answers(port, "a", 200)
	revoked, neighbour := w.traffic("a"), w.traffic("b")
	w.remove("grant.yaml")
	w.answers(port, "a", 500)
	w.says("httproute", "a", "RefNotPermitted")
	if sums := revoked.end(); len(sums) > 2 || sums[200] == 0 {
		t.Errorf("at the revocation, answers by code: %v, want 200 and then 500", sums)
	}
	before := a.requests.Load()
	again := w.traffic("a")
	w.write("grant.yaml", grant)
	w.answers(port, "a", 200)
	if sums := again.end(); sums[200]+sums[500] == 0 || len(sums) > 2 || sums[503] > 0 || sums[404] > 0 {
		t.Errorf("at the grant, answers by code: %v, want 500 and then 200", sums)
	}
	if sums := neighbour.end(); len(sums) != 1 || sums[200] == 0 {
		t.Errorf("the neighbour's answers by code: %v, want 200 alone", sums)
	}
	if before == 0 {
		t.Error("nothing ever arrived")
	}
}

func TestAPolicyThatComesAndGoesUnderTraffic(t *testing.T) {
	ours := newAuthority(t, "ours")
	const valid = `hostname: right.test, caCertificateRefs: [{group: "", kind: ConfigMap, name: ours}]`
	next := newAuthority(t, "next")
	a, b := serve(t, "a", false, ours.server("right.test")), serve(t, "b", false, next.server("right.test"))
	w := start(t, map[string]string{
		"ca.yaml": configMap("ours", ours),
		"all.yaml": route("a", "a") + service("a", "", a.port, ready) +
			route("b", "b") + service("b", "", b.port, ready) + policy("b", valid),
		"policy.yaml": policy("a", valid),
	})
	w.answers(port, "a", 200)

	// Authorities are exchanged while requests go on: the old connections serve, and new
	// ones are believed as long as the server's authority is among them.
	w.answers(port, "b", 503)
	f := w.traffic("a")
	w.write("ca.yaml", configMap("ours", ours, next))
	w.answers(port, "b", 200)
	for range 8 {
		if code, _ := w.ask(port, "a", "/close"); code != 200 {
			t.Errorf("a new connection got %d", code)
		}
	}
	if sums := f.end(); len(sums) != 1 || sums[200] == 0 {
		t.Errorf("while authorities were exchanged, answers by code: %v, want 200 alone", sums)
	}

	// Without its own authority among them, no new connection is made.
	w.write("ca.yaml", configMap("ours", next))
	w.eventually("the server is not believed any more", func() (bool, string) {
		code, _ := w.ask(port, "a", "/close")
		return code == 503, fmt.Sprint(code)
	})
	// And without any, there is no backend.
	w.remove("ca.yaml")
	w.answers(port, "a", 500)
	w.says("backendtlspolicy", "a", "NoValidCACertificate")
	w.write("ca.yaml", configMap("ours", ours))
	w.answers(port, "a", 200)
	w.remove("policy.yaml")
	w.answers(port, "a", 400) // plaintext to a server of TLS, as was asked for
}
