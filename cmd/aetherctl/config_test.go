package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/fleet"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/statedir"
)

// answering is a state directory in which a controller answers as this one: the release
// namespace has a MeshConfig, shop has one of its own; Gateways of shop and of blog are served by
// the shared proxies, one of vault by its own.
func answering(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	d, err := statedir.Of(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]any{
		inspect.ConfigPath: inspect.Config{
			ReleaseNamespace: "aether-system", System: inspect.System{TraceSampleRate: 0.1},
			MeshConfigs: []inspect.MeshConfig{
				{Namespace: "aether-system", Generation: 3, Spec: json.RawMessage(`{"proxy":{"accessLogsEnabled":true}}`)},
				{Namespace: "shop", Generation: 1, Spec: json.RawMessage(`{"proxy":{"accessLogSuccessSampleRate":0,"traceSampleRate":0.5}}`)},
			},
		},
		inspect.ResourcesPath: []inspect.Resource{
			{Scope: "SharedPool", Type: "Listener", Name: "shop/web/80", Origin: []string{"Gateway/shop/web", "ListenerSet/other/more"}},
			{Scope: "SharedPool", Type: "Listener", Name: "blog/web/80", Origin: []string{"Gateway/blog/web"}},
			{Scope: "Gateway/vault/web", Type: "Listener", Name: "vault/web/80", Origin: []string{"Gateway/vault/web"}},
			{Scope: "Gateway/vault/web", Type: "Cluster", Name: "x/y/80", Origin: []string{"Service/x/y"}},
		},
		inspect.ProxiesPath: []fleet.Proxy{
			{Peer: fleet.Peer{ID: "shared-b"}, ScopeName: "SharedPool"},
			{Peer: fleet.Peer{ID: "shared-a"}, ScopeName: "SharedPool"},
			{Peer: fleet.Peer{ID: "vault-a"}, ScopeName: "Gateway/vault/web"},
		},
	}
	answers := map[string]inspect.Page{}
	for path, v := range pages {
		answers[path] = func(*http.Request) (any, error) { return v, nil }
	}
	log := slog.New(slog.DiscardHandler)
	l, err := inspect.Listen(t.Context(), d.ControllerSocket())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: inspect.Handler(log, &journal.Journal{}, answers, nil)}
	done := make(chan struct{})
	go func() { // ends when the server is closed
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { _ = server.Close(); <-done })
	return dir
}

func TestConfigGetSaysWhereEachValueComesFrom(t *testing.T) {
	dir := answering(t)
	for args, want := range map[string]string{
		"": `NAMESPACE      FIELD                             VALUE  FROM
aether-system  proxy.accessLogsEnabled           true   aether-system/default
shop           proxy.accessLogSuccessSampleRate  0      shop/default
shop           proxy.traceSampleRate             0.5    shop/default
`,
		"blog --effective": `NAMESPACE  FIELD                             VALUE  FROM
blog       proxy.accessLogsEnabled           true   aether-system/default
blog       proxy.accessLogSuccessSampleRate  100    default
blog       proxy.tracingEnabled              false  system (otel.enabled and otel.traceExport)
blog       proxy.traceSampleRate             0.1    system (otel.traceSampleRate)
blog       proxy.emitStatsPod                false  default
`,
		"blog": "namespace blog has no MeshConfig; these have one: aether-system, shop. --effective shows what is inherited\n",
		"shop -o yaml": `- field: proxy.accessLogSuccessSampleRate
  from: shop/default
  namespace: shop
  value: 0
- field: proxy.traceSampleRate
  from: shop/default
  namespace: shop
  value: 0.5
`,
	} {
		t.Run(args, func(t *testing.T) {
			out, _, err := try(t, "", append([]string{"config", "get", "--state-dir", dir}, strings.Fields(args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, out); d != "" {
				t.Error(d)
			}
		})
	}
	out, _, err := try(t, "", "config", "get", "--effective", "--state-dir", dir, "-o", "json")
	var values []meshValue
	if jsonErr := json.Unmarshal([]byte(out), &values); err != nil || jsonErr != nil || len(values) != 4*5 {
		t.Errorf("%v, %v: want five fields of each of four namespaces, got %s", err, jsonErr, out)
	}
}

func mesh(namespace, proxy string) string {
	return "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: " + namespace + "}\nspec: {proxy: {" + proxy + "}}\n"
}

func TestConfigDiffSaysWhatWouldChangeAndWhom(t *testing.T) {
	dir := answering(t)
	for name, c := range map[string]struct {
		in, out, says string
		status        int
	}{
		"the same": {in: mesh("aether-system", "accessLogsEnabled: true"), out: "nothing would change\n"},
		"one namespace": {in: mesh("vault", "accessLogsEnabled: false"), status: 1, says: "1 difference", out: `NAMESPACE  FIELD                    LIVE                          FILE
vault      proxy.accessLogsEnabled  true (aether-system/default)  false (vault/default)

would touch 1 of the proxies that are known: vault-a
`},
		"what others inherit": {in: mesh("aether-system", "accessLogsEnabled: true, traceSampleRate: 0.5"), status: 1, says: "3 differences", out: `NAMESPACE      FIELD                  LIVE          FILE
aether-system  proxy.traceSampleRate  0.1 (system)  0.5 (aether-system/default)
blog           proxy.traceSampleRate  0.1 (system)  0.5 (aether-system/default)
vault          proxy.traceSampleRate  0.1 (system)  0.5 (aether-system/default)

would touch 3 of the proxies that are known: shared-a, shared-b, vault-a
`},
		"a value is pinned": {in: mesh("blog", "accessLogsEnabled: true"), status: 1, says: "1 difference", out: `NAMESPACE  FIELD                    LIVE                          FILE
blog       proxy.accessLogsEnabled  true (aether-system/default)  true (blog/default)

no proxy would be touched
`},
		"a field is taken out": {in: mesh("shop", "accessLogSuccessSampleRate: 0"), status: 1, says: "1 difference", out: `NAMESPACE  FIELD                  LIVE                FILE
shop       proxy.traceSampleRate  0.5 (shop/default)  0.1 (system)

would touch 2 of the proxies that are known: shared-a, shared-b
`},
		"one that would be refused": {in: mesh("shop", "traceSampleRate: 7"), status: 2, says: "-:4: spec.proxy.traceSampleRate: "},
		"nothing of ours":           {in: "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n", status: 2, says: "no MeshConfig in the files -"},
		"no YAML":                   {in: "a: [", status: 2, says: "-:1"},
	} {
		t.Run(name, func(t *testing.T) {
			out, status, err := try(t, c.in, "config", "diff", "-", "--state-dir", dir)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("exit status %d, %q, want %d, %q", status, text, c.status, c.says)
			}
			if d := cmp.Diff(c.out, out); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestConfigDiffReadsFilesAndTellsUnknownFields(t *testing.T) {
	dir := answering(t)
	file := filepath.Join(t.TempDir(), "mesh.yaml")
	if err := os.WriteFile(file, []byte(mesh("shop", "traceSampleRat: 1")), 0o600); err != nil {
		t.Fatal(err)
	}
	var complaints strings.Builder
	cmd := root()
	cmd.SetArgs([]string{"config", "diff", file, "--state-dir", dir, "-o", "json"})
	var out strings.Builder
	cmd.SetOut(&out)
	cmd.SetErr(&complaints)
	err := cmd.ExecuteContext(context.Background())
	var d difference
	if jsonErr := json.Unmarshal([]byte(out.String()), &d); jsonErr != nil || err == nil || len(d.Changes) != 2 {
		t.Errorf("%v, %v: %s", err, jsonErr, out.String())
	}
	if want := file + ":4: spec.proxy.traceSampleRat: is not known"; !strings.Contains(complaints.String(), want) {
		t.Errorf("it complains of %q, want %q", complaints.String(), want)
	}
}

func TestConfigGetRefusesWhatIsNoNamespace(t *testing.T) {
	for arg, want := range map[string]string{
		"Shop":         `"Shop" is not the name of a namespace; did you mean shop?`,
		"Shop/default": "aetherctl config get shop",
		"shop_1":       `"shop_1" is not the name of a namespace`,
	} {
		refused(t, "config get "+arg+" --state-dir "+t.TempDir(), want)
	}
}
