package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// apiServer lists what it is given, by path, a page an object, and refuses the rest. It returns
// the kubeconfig by which it is reached.
func apiServer(t *testing.T, lists map[string][]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		items, known := lists[r.URL.Path]
		w.Header().Set("Content-Type", "application/json")
		if !known {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		at, more := len(r.URL.Query().Get("continue")), ""
		if at+1 < len(items) {
			more = strings.Repeat("x", at+1)
		}
		page := ""
		if at < len(items) {
			page = items[at]
		}
		fmt.Fprintf(w, `{"kind":"List","apiVersion":"v1","metadata":{"continue":%q},"items":[%s]}`, more, page)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestAClusterIsAnalyzedWithTheRightsThatThereAre(t *testing.T) {
	const gateway = "/apis/gateway.networking.k8s.io/v1/"
	lists := map[string][]string{
		"/api/v1/namespaces":                       {`{"metadata":{"name":"default","creationTimestamp":"2026-01-01T00:00:00Z"}}`},
		"/api/v1/services":                         {`{"metadata":{"name":"shop","namespace":"default"},"spec":{"ports":[{"port":80}],"trafficPolicyOfTomorrow":"x"}}`},
		"/api/v1/configmaps":                       nil,
		"/apis/discovery.k8s.io/v1/endpointslices": nil,
		gateway + "gatewayclasses": {
			`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"other"},"spec":{"controllerName":"example.com/other"}}`,
			`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"GatewayClass","metadata":{"name":"coxswain","deletionTimestamp":"2026-01-02T03:04:05Z","finalizers":["x"]},"spec":{"controllerName":"config.aether.io/gateway-controller"}}`,
		},
		gateway + "gateways": {`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway","metadata":{"name":"web","namespace":"default","generation":2,"uid":"u","managedFields":[{"manager":"m"}]},
			"spec":{"gatewayClassName":"coxswain","listeners":[{"name":"https","protocol":"HTTPS","port":443,"tls":{"certificateRefs":[{"name":"shop"}]}}]},"status":{"conditions":[]}}`},
		gateway + "listenersets":       nil,
		gateway + "backendtlspolicies": nil,
		gateway + "referencegrants":    nil,
		gateway + "httproutes": {`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"shop","namespace":"default"},
			"spec":{"parentRefs":[{"name":"web"}],"rules":[{"backendRefs":[{"name":"shop","port":80},{"name":"none","port":80}]}]}}`},
		"/apis/config.aether.io/v1/gatewayparameters": nil,
		"/apis/config.aether.io/v1/meshconfigs":       {`{"apiVersion":"config.aether.io/v1","kind":"MeshConfig","metadata":{"name":"default","namespace":"default"},"spec":{"proxy":{"traceSampleRate":0.5}}}`},
	}
	out, status, err := try(t, "", "analyze", "-A", "--kubeconfig", apiServer(t, lists))
	if status != 1 {
		t.Errorf("exit status %d: %v", status, err)
	}
	for _, want := range []string{
		"warning AET1002: GatewayClass/coxswain: metadata.deletionTimestamp: is being deleted since 2026-01-02 03:04:05, and 1 Gateways use it",
		"error AET2101: HTTPRoute/default/shop: spec.rules[0].backendRefs[1]: Service default/none does not exist",
		"info AET0007: Secret: cannot be listed: you lack the right to list it in all namespaces",
		"info AET0006: Gateway/default/web: spec.listeners[0].tls.certificateRefs[0]: Secret/default/shop is not among",
		"warning AET1104: Gateway/default/web: spec: nothing has given it an address yet",
		"AET4004: MeshConfig/default/default: spec.proxy.traceSampleRate: has no effect",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	for _, not := range []string{"AET1207", "trafficPolicyOfTomorrow", "AET0099"} {
		if strings.Contains(out, not) {
			t.Errorf("it has %s:\n%s", not, out)
		}
	}
}

func TestAClusterThatDoesNotAnswerCannotBeAnalyzed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"analyze -A --kubeconfig " + file:            "the API server does not answer at http://127.0.0.1:1",
		"analyze -A a.yaml --kubeconfig " + file:     "name no files",
		"analyze -A --complete --kubeconfig " + file: "if any flags in the group",
	} {
		_, status, err := try(t, "", strings.Fields(args)...)
		if status != 2 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: exit status %d, %v, want 2, %q", args, status, err, want)
		}
	}
}
