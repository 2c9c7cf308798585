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
	docs := []inspect.StatusDocument{
		{Kind: "Gateway", Namespace: "default", Name: "web"},
		{Kind: "GatewayClass", Name: "coxswain"},
		{Kind: "HTTPRoute", Namespace: "a", Name: "shop"},
		{Kind: "HTTPRoute", Namespace: "b", Name: "shop"},
	}
	for typed, want := range map[string]string{
		"":                       "Gateway/default/web GatewayClass/coxswain HTTPRoute/a/shop HTTPRoute/b/shop",
		"httproutes":             "HTTPRoute/a/shop HTTPRoute/b/shop",
		"gatewayclasses":         "GatewayClass/coxswain",
		"httproute shop":         "HTTPRoute/a/shop HTTPRoute/b/shop",
		"httproute b/shop":       "HTTPRoute/b/shop",
		"HTTPRoute/b/shop":       "HTTPRoute/b/shop",
		"gateway/web":            "Gateway/default/web",
		"GatewayClass/coxswain":  "GatewayClass/coxswain",
		"gateway nope":           "no object of that kind and name has a status: gateway nope; there are Gateway, GatewayClass, HTTPRoute",
		"HTTPRoute/default/shop": "no object of that kind and name has a status: HTTPRoute default/shop; there are Gateway, GatewayClass, HTTPRoute",
	} {
		t.Run(typed, func(t *testing.T) {
			found, err := pick(docs, splitName(strings.Fields(typed)))
			var got []string
			for _, d := range found {
				got = append(got, standalone.ObjectName(d))
			}
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
		"get nonsense":                         "processes, proxies, resources, identity",
		"get proxies":                          "start one with",
		"get proxies --dir " + empty:           `aetherctl standalone ` + empty,
		"get processes --dir " + empty:         `aetherctl standalone ` + empty,
		"status --dir a --state-dir b":         "give one",
		"status -o yaml":                       "there is json",
		"status a b c":                         "Name a kind",
	} {
		t.Run(args, func(t *testing.T) {
			cmd := root()
			cmd.SetArgs(strings.Fields(args))
			cmd.SetOut(new(bytes.Buffer))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want a sentence with %q", err, want)
			}
		})
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
	printToLookAt(&b, nil, []problem{
		{Message: "is not there", Severity: "Refused"},
		{File: "a.yaml", Document: 2, Object: "Secret/default/s", Path: "data", Message: "is required", Severity: "Refused"},
		{File: "b.yaml", Message: "is not read", Severity: "Ignored"},
	})
	want := `
2 to look at:
  the directory of manifests: is not there
  a.yaml (document 2): Secret/default/s: data: is required

1 not read, which Aether has no use for:
  b.yaml: is not read
`
	if got := b.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
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

func TestTablesHaveNoEmptyCells(t *testing.T) {
	var b bytes.Buffer
	processTable(&b, []process{{Name: "envoy"}})
	if got, want := b.String(), "PROCESS\tPID\tRUNNING\nenvoy\t-\tfalse\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
