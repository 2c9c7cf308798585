package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone"
	"aether.io/aether/internal/statedir"
)

func TestStatusPicksObjectsAsPeopleNameThem(t *testing.T) {
	all := findings{idle: []string{"HTTPRoute/b/lost"}, problems: []problem{{Object: "HTTPRoute/b/new"}, {File: "a.yaml"}}, docs: []inspect.StatusDocument{
		{Kind: "Gateway", Namespace: "default", Name: "web"},
		{Kind: "GatewayClass", Name: "coxswain"},
		{Kind: "HTTPRoute", Namespace: "a", Name: "shop"},
		{Kind: "HTTPRoute", Namespace: "b", Name: "shop"},
	}}
	for typed, want := range map[string]string{
		"":                       "Gateway/default/web GatewayClass/coxswain HTTPRoute/a/shop HTTPRoute/b/lost HTTPRoute/b/new HTTPRoute/b/shop",
		"httproutes":             "HTTPRoute/a/shop HTTPRoute/b/lost HTTPRoute/b/new HTTPRoute/b/shop",
		"gatewayclasses":         "GatewayClass/coxswain",
		"httproute shop":         "HTTPRoute/a/shop HTTPRoute/b/shop",
		"httproute b/shop":       "HTTPRoute/b/shop",
		"HTTPRoute/b/shop":       "HTTPRoute/b/shop",
		"gateway/web":            "Gateway/default/web",
		"GatewayClass/coxswain":  "GatewayClass/coxswain",
		"gc":                     "GatewayClass/coxswain",
		"httproute -n b":         "HTTPRoute/b/lost HTTPRoute/b/new HTTPRoute/b/shop",
		"-n b":                   "HTTPRoute/b/lost HTTPRoute/b/new HTTPRoute/b/shop",
		"httproute lost":         "HTTPRoute/b/lost",
		"httproute new":          "HTTPRoute/b/new",
		"gateway nope":           "no gateway nope has a status; there are default/web",
		"httproute -n c":         "no httproute in namespace c has a status; there are a/shop, b/lost, b/new, b/shop",
		"HTTPRoute/default/shop": "no HTTPRoute default/shop has a status; there are a/shop, b/lost, b/new, b/shop",
		"Service":                "no object of kind Service has a status; of these some have: Gateway, GatewayClass, HTTPRoute",
		"httproutte":             "there is no kind httproutte; did you mean HTTPRoute? Of these some have a status: Gateway, GatewayClass, HTTPRoute",
		"Collector":              "nothing called Collector has a status, or is known to be wrong; of these some have a status: Gateway, GatewayClass, HTTPRoute",
		"-n B":                   `-n: "B" is not the name of a namespace; did you mean b?`,
		"httproute a/shop -n b":  "httproute a/shop is in another namespace than -n b",
	} {
		t.Run(typed, func(t *testing.T) {
			args, namespace, _ := strings.Cut(typed, "-n ")
			q, err := ask(strings.Fields(args), namespace)
			found := all
			if err == nil {
				found, err = all.pick(q)
			}
			got := found.objects()
			if err != nil {
				got = []string{err.Error()}
			}
			if strings.Join(got, " ") != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func TestUsageErrorsSayWhatToDo(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	empty := t.TempDir()
	for args, want := range map[string]string{
		"standalone":                           "aetherctl standalone DIR",
		"standalone a b":                       "aetherctl standalone DIR",
		"standalone " + empty + " -o yaml":     "there is json",
		"standalone " + empty + " --drain -1s": "below 0",
		"get":                                  "processes, proxies, resources, identity",
		"standalone " + empty + " --drain 5":   "as in 500ms, 5s, 1m",
		"get nonsense":                         "get nonsense? There are processes, proxies, resources, identity",
		"get proxies":                          "start one with",
		"get proxies --dir " + empty:           `aetherctl standalone ` + empty,
		"get processes --dir " + empty:         `aetherctl standalone ` + empty,
		"status --dir a --state-dir b":         "give one",
		"get gateways":                         `of objects there is "aetherctl status gateways"`,
		"status -o yaml":                       "there is json",
		"status a b c":                         "Name a kind",
		"config dif mesh.yaml":                 `unknown command "dif" for "aetherctl config"; did you mean diff?`,
		"discovery reset":                      "did you mean reset-epoch?",
		"config get -o xml":                    "json and yaml",
	} {
		t.Run(args, func(t *testing.T) { refused(t, args, want) })
	}
}

// refused runs aetherctl with arguments that it must not take, and say why.
func refused(t *testing.T, args, want string) {
	t.Helper()
	if out, _, err := try(t, "", strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %s %v, want a sentence with %q", out, err, want)
	}
}

// A pid file outlives a supervisor that was killed, and its pid may be another process's.
func TestAPidAloneIsNoInstance(t *testing.T) {
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	state := filepath.Join(base, "aether", "x")
	if err := os.MkdirAll(state, 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(standalone.Settings{Dir: "/d", Supervisor: os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(state, "settings.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if d, err := theOneThatRuns(); err == nil {
		t.Fatalf("found %s, which this test is not", d.Root())
	}
}

func TestAProblemSaysWhereItIs(t *testing.T) {
	var b bytes.Buffer
	f := findings{problems: []problem{
		{Message: "is not there", Severity: "Refused"},
		{File: "a.yaml", Document: 2, Object: "Secret/default/s", Path: "data", Message: "is required", Severity: "Refused"},
		{File: "b.yaml", Message: "is not read", Severity: "Ignored"},
	}, idle: []string{"Gateway/default/web"}, settled: true}
	if err := f.print(&b, "", query{}); err != nil {
		t.Fatal(err)
	}
	want := `OBJECT               GENERATION  CONDITIONS
Gateway/default/web  -           none

3 to look at:
  Gateway/default/web: has no effect: its gatewayClassName names no GatewayClass that is ours
  the directory of manifests: is not there
  a.yaml (document 2): Secret/default/s: data: is required

1 not read, which Aether has no use for:
  b.yaml: is not read
`
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// What is refused is not in the status, which is that of the version before.
func TestAnObjectThatIsNamedTellsWhatIsWrongWithItsFile(t *testing.T) {
	f := findings{docs: []inspect.StatusDocument{{Kind: "HTTPRoute", Namespace: "default", Name: "shop", Status: json.RawMessage(`{}`)}}, problems: []problem{
		{File: "a.yaml", Document: 1, Object: "HTTPRoute/default/shop", Path: "spec.rules", Message: "is bad", Severity: "Refused"},
		{File: "a.yaml", Document: 2, Object: "HTTPRoute/default/other", Message: "is bad", Severity: "Refused"},
		{File: "b.yaml", Message: "is no YAML", Severity: "Refused"},
	}}
	q := query{kind: "httproute", namespace: "default", name: "shop"}
	f, err := f.pick(q)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.print(&b, "", q); err != nil {
		t.Fatal(err)
	}
	want := `
# 2 to look at:
#   a.yaml (document 1): HTTPRoute/default/shop: spec.rules: is bad
#   b.yaml: is no YAML
`
	if !strings.HasSuffix(b.String(), want) {
		t.Errorf("got %q, want %q at its end", b.String(), want)
	}
}

func TestAControllerThatIsStoppedIsNoMystery(t *testing.T) {
	d, err := statedir.Of(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	i := &instance{dir: d}
	for err, want := range map[error]string{
		fmt.Errorf("ask: %w", context.DeadlineExceeded): "the controller does not answer in time",
		fmt.Errorf("ask: %w", os.ErrNotExist):           "no instance runs on the state directory",
	} {
		if got := i.explain(err); got == nil || !strings.Contains(got.Error(), want) {
			t.Errorf("%v is explained as %v, want %q", err, got, want)
		}
	}
}

func TestAnEmptyTableSaysSo(t *testing.T) {
	var b bytes.Buffer
	proxyTable(&b, nil)
	resourceTable(&b, nil)
	if got, want := b.String(), "no proxy is connected yet\nthere is no resource yet\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestTheVersionIsACommandToo(t *testing.T) {
	var b bytes.Buffer
	cmd := root()
	cmd.SetArgs([]string{"version"})
	cmd.SetOut(&b)
	if err := cmd.ExecuteContext(t.Context()); err != nil || strings.TrimSpace(b.String()) != cmd.Version {
		t.Errorf("got %q, %v", b.String(), err)
	}
}

func TestTablesHaveNoEmptyCells(t *testing.T) {
	var b bytes.Buffer
	processTable(&b, []process{{Name: "envoy"}})
	if got, want := b.String(), "PROCESS\tPID\tRUNNING\tLOG\nenvoy\t-\tfalse\t-\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestAMisspeltSubcommandIsNoCheckThatFoundNothing(t *testing.T) {
	for _, args := range []string{"config dif mesh.yaml", "discovery reset"} {
		cmd := root()
		cmd.SetArgs(strings.Fields(args))
		cmd.SetOut(new(bytes.Buffer))
		ran, err := cmd.ExecuteContextC(t.Context())
		if err == nil || exitStatus(ran, err) != 2 {
			t.Errorf("%s: got %v and status %d, want an error and 2", args, err, exitStatus(ran, err))
		}
	}
}

// What is wrong may be with what is no object.
func TestTheStatusOfWhatHasNoneIsWhatIsWrongWithIt(t *testing.T) {
	all := findings{
		settled:  true,
		docs:     []inspect.StatusDocument{{Kind: "GatewayClass", Name: "coxswain"}},
		problems: []problem{{Object: "Collector/otel.example:4317", Message: "nothing arrives", Severity: "Warning"}},
	}
	for args, want := range map[string]string{
		"Collector":                   "\n1 to look at:\n  Collector/otel.example:4317: nothing arrives\n",
		"collector":                   "\n1 to look at:\n  Collector/otel.example:4317: nothing arrives\n",
		"Collector/otel.example:4317": "\n# 1 to look at:\n#   Collector/otel.example:4317: nothing arrives\n",
	} {
		q, err := ask(strings.Fields(args), "")
		if err != nil {
			t.Fatal(err)
		}
		found, err := all.pick(q)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := found.print(&b, "", q); err != nil || b.String() != want {
			t.Errorf("%s: got %q and %v, want %q", args, b.String(), err, want)
		}
	}
	var b bytes.Buffer
	q := query{namespace: "shop"}
	found, err := all.pick(q)
	if err != nil {
		t.Fatal(err)
	}
	if err := found.print(&b, "", q); err != nil || b.String() != "no object of namespace shop has a status\n" {
		t.Errorf("got %q and %v", b.String(), err)
	}
}
