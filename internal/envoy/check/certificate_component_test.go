//go:build component

package check

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// served is a pair that a listener serves, with what it verifies clients by; nil: it does not.
type served struct {
	name                   string
	cert, key, authorities []byte
}

// envoyRefuses has Envoy load them all, and returns what it says against that.
func envoyRefuses(t *testing.T, all ...served) string {
	t.Helper()
	binary := os.Getenv("AETHER_ENVOY")
	if binary == "" {
		t.Fatal("component tests need an Envoy binary: set AETHER_ENVOY to its path")
	}
	type object = map[string]any
	inline := func(data []byte) object { return object{"inline_string": string(data)} }
	var chains []any
	for i, s := range all {
		common := object{"tls_certificates": []any{object{"certificate_chain": inline(s.cert), "private_key": inline(s.key)}}}
		if s.authorities != nil {
			common["validation_context"] = object{"trusted_ca": inline(s.authorities)}
		}
		chains = append(chains, object{
			"filter_chain_match": object{"destination_port": i + 1},
			"filters":            []any{object{"name": "e", "typed_config": object{"@type": "type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo"}}},
			"transport_socket": object{"name": "t", "typed_config": object{
				"@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext", "common_tls_context": common,
			}},
		})
	}
	config, err := json.Marshal(object{"static_resources": object{"listeners": []any{object{
		"name": "l", "address": object{"socket_address": object{"address": "127.0.0.1", "port_value": 1}}, "filter_chains": chains,
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "critical").CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}

// Envoy refuses the next change of a listener for a certificate that it does not load, so
// one Secret could hold back everybody who shares the port.
func TestEnvoyLoadsEveryCertificateThatPasses(t *testing.T) {
	plainCert, plainKey := oddities()[0].pair()
	var all []served
	for _, o := range oddities() {
		cert, key := o.pair()
		if _, _, err := KeyPair(cert, key); err == nil {
			all = append(all, served{o.name, cert, key, nil})
		} else if o.refused != "" && envoyRefuses(t, served{o.name, cert, key, nil}) == "" {
			t.Errorf("%s: Envoy loads it, and we refuse it: %v", o.name, err)
		}
		if _, err := Authorities(cert); err == nil {
			all = append(all, served{o.name + ", as an authority", plainCert, plainKey, cert})
		}
	}
	if len(all) < 60 {
		t.Fatalf("only %d pass", len(all))
	}
	if envoyRefuses(t, all...) == "" {
		return
	}
	for _, s := range all {
		if said := envoyRefuses(t, s); said != "" {
			t.Errorf("%s: %s", s.name, said)
		}
	}
}
