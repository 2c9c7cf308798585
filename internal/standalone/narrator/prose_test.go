package narrator

import (
	"encoding/json"
	"testing"

	"aether.io/aether/internal/inspect"
)

func TestEventsReadAsProse(t *testing.T) {
	for name, c := range map[string]struct{ kind, message, detail, want string }{
		"a proxy that waits says for what": {"state", "proxy NotReady AwaitingSnapshot", `{"state":"NotReady","reason":"AwaitingSnapshot"}`, "starting: the first configuration is not live yet"},
		"an outage says what is served":    {"state", "proxy Degraded Disconnected", `{"state":"Degraded","reason":"Disconnected"}`, "degraded: the proxy is not connected to the controller; Envoy serves its last good configuration"},
		"without Envoy nothing is served":  {"state", "proxy NotReady EnvoyDisconnected", `{"state":"NotReady","reason":"EnvoyDisconnected"}`, "starting: Envoy is not connected to the proxy"},
		"ready has no reason":              {"state", "proxy Ready ", `{"state":"Ready"}`, "proxy is ready"},
		"an unknown reason is shown":       {"state", "proxy NotReady New", `{"state":"NotReady","reason":"New"}`, "starting: New"},
		"a deleted object is called so":    {"change", "-HTTPRoute/a/b: 1 resource changed", `{"objects":["-HTTPRoute/a/b"]}`, "HTTPRoute/a/b (deleted): 1 resource changed"},
		"a problem is marked":              {"problem", "a.yaml: cannot be read", `{}`, "! a.yaml: cannot be read"},
		"all else is as it was told":       {"ca-ready", "CA ready", `null`, "CA ready"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := prose(inspect.Event{Kind: c.kind, Message: c.message, Detail: json.RawMessage(c.detail)}); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
