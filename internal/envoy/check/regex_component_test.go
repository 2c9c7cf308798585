//go:build component

package check

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// validate asks Envoy about a pattern, with RE2 programs of up to limit instructions.
func validate(t *testing.T, pattern string, limit int) string {
	t.Helper()
	binary := os.Getenv("AETHER_ENVOY")
	if binary == "" {
		t.Fatal("component tests need an Envoy binary: set AETHER_ENVOY to its path")
	}
	quoted, _ := json.Marshal(pattern)
	config := fmt.Sprintf(`{
  "layered_runtime": {"layers": [{"name": "s", "static_layer": {"re2.max_program_size.error_level": %d}}]},
  "static_resources": {"listeners": [{
    "name": "l", "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
    "filter_chains": [{"filters": [{"name": "h", "typed_config": {
      "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
      "stat_prefix": "x",
      "http_filters": [{"name": "r", "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}],
      "route_config": {"virtual_hosts": [{"name": "v", "domains": ["*"], "routes": [
        {"match": {"prefix": "/", "headers": [{"name": "x", "string_match": {"safe_regex": {"regex": %s}}}]}, "direct_response": {"status": 200}}]}]}
    }}]}]}]}}`, limit, quoted)
	file := filepath.Join(t.TempDir(), "c.json")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "critical").CombinedOutput()
	if err == nil {
		return ""
	}
	return string(out)
}

var programSize = regexp.MustCompile(`RE2 program size of (\d+)`)

func TestEnvoyTakesEveryRegexThatPassesAndItsProgramIsNoLargerThanTheEstimate(t *testing.T) {
	for _, pattern := range accepted() {
		if said := validate(t, pattern, EnvoyMaxRegexSize); said != "" {
			t.Errorf("%q: %s", pattern, said)
			continue
		}
		m := programSize.FindStringSubmatch(validate(t, pattern, 0))
		if m == nil {
			t.Errorf("%q: Envoy told no program size", pattern)
			continue
		}
		size, _ := strconv.Atoi(m[1])
		t.Logf("%-40q RE2 %4d estimate %4d", pattern, size, estimate(pattern))
		if size > estimate(pattern) {
			t.Errorf("%q: RE2's program is %d, the estimate %d", pattern, size, estimate(pattern))
		}
	}
}

// Some of the refused are Envoy's to take: they are refused for their size or for a
// syntax Go does not have, both on the safe side.
func TestTheSyntaxThatIsRefusedIsRefusedByEnvoyToo(t *testing.T) {
	for _, pattern := range refused() {
		if err := Regex(pattern); pattern == `\C` || pattern == "\xff" || strings.Contains(err.Error(), "too large") {
			continue
		}
		if validate(t, pattern, EnvoyMaxRegexSize) == "" {
			t.Errorf("%q: Envoy takes it", pattern)
		}
	}
}
