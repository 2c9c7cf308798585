//go:build component

package envoy_test

import (
	"fmt"
	"testing"

	"aether.io/aether/internal/envoy"
)

// The copies say something else than the scopes do, so that a request that finds one tells.
func TestNoRequestFindsATrialCopy(t *testing.T) {
	r := newRig(t)
	models := append(cluster("ns/a/80", envoy.HTTP1, backend(t, "a", false)), cluster("ns/trial/80", envoy.HTTP1, backend(t, "trial", false))...)
	hosts := func(cluster string) []envoy.VirtualHost {
		var out []envoy.VirtualHost
		for _, h := range []string{"a.example", "trial", "*.wild.example", "*"} {
			out = append(out, envoy.VirtualHost{Host: h, Routes: []envoy.Route{{Name: "ns/" + cluster + "/0/0", Backends: to(cluster)}}})
		}
		return out
	}
	ports := map[bool]uint32{false: freePort(t), true: freePort(t)}
	for perHost, port := range ports {
		table := fmt.Sprintf("ns/gw/%d", port)
		models = append(models, scopes(table, perHost, hosts("ns/a/80"))...)
		for _, m := range scopes(table, perHost, hosts("ns/trial/80")) {
			copied, err := envoy.Trial(resourceOf(t, m))
			if err != nil {
				t.Fatal(err)
			}
			r.ads.put(copied)
		}
	}
	models = append(models, envoy.Runtime{})
	for perHost, port := range ports {
		table := fmt.Sprintf("ns/gw/%d", port)
		models = append(models, envoy.Listener{Name: table, Address: "127.0.0.1", Port: port, Chains: []envoy.Chain{{Name: table, PerHost: perHost}}})
	}
	r.serve(t, models...)
	for perHost, port := range ports {
		r.awaitListener(t, port)
		table := fmt.Sprintf("ns/gw/%d", port)
		for _, host := range []string{
			"a.example", "A.Example", "a.example:80", "x.wild.example", "unknown.example", "*",
			"a.example:trial", "A.EXAMPLE:trial", "*:trial", ":trial", "trial", "trial:trial", "x.wild.example:trial",
			"a.example%3Atrial", "*%3Atrial", table + "|a.example:trial", table + "|*:trial", "a.example::trial", "[a.example:trial]", "[*:trial]",
		} {
			for _, own := range []string{table + "|a.example:trial", table + "|*:trial"} {
				a := ask(t, port, "GET / HTTP/1.1", "Host: "+host, "x-aether-scope: "+own)
				if a.Seen.Backend == "trial" {
					t.Errorf("per host %t: a request for %q with the scope header %q found a copy", perHost, host, own)
				}
			}
		}
		if a := ask(t, port, "GET / HTTP/1.1", "Host: a.example"); a.Status != 200 || a.Seen.Backend != "a" {
			t.Errorf("per host %t: the scope itself answers %d from %q", perHost, a.Status, a.Seen.Backend)
		}
	}
}
