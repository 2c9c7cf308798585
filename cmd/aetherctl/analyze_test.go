package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"aether.io/aether/internal/analyze"
	"aether.io/aether/internal/analyze/code"
)

// try runs a command as main does, and returns what it prints and its exit status.
func try(t *testing.T, in string, args ...string) (out string, status int, err error) {
	t.Helper()
	var text bytes.Buffer
	cmd := root()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&text)
	ran, err := cmd.ExecuteContextC(t.Context())
	if err != nil {
		status = exitStatus(ran, err)
	}
	return text.String(), status, err
}

const (
	good     = "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: aether-system}\nspec: {proxy: {accessLogsEnabled: true}}\n"
	misspelt = "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: aether-system}\nspec: {proxy: {accessLogEnabled: true}}\n"
	vain     = "apiVersion: config.aether.io/v1\nkind: MeshConfig\nmetadata: {name: default, namespace: aether-system}\nspec: {proxy: {accessLogsEnabled: false, accessLogSuccessSampleRate: 5}}\n"
)

// What a pipeline relies on.
func TestAnalyzeExitsByWhatItFinds(t *testing.T) {
	for name, c := range map[string]struct {
		in     string
		args   string
		status int
		says   string
	}{
		"nothing":                         {in: good, args: "analyze -", status: 0},
		"an unknown field":                {in: misspelt, args: "analyze -", status: 1, says: "1 finding as bad as --fail-on error"},
		"check is the same":               {in: misspelt, args: "check -", status: 1, says: "1 finding"},
		"an error that is ignored":        {in: misspelt, args: "analyze - --ignore aet4001", status: 0},
		"an error, and nothing matters":   {in: misspelt, args: "analyze - --fail-on never", status: 0},
		"a warning":                       {in: vain, args: "analyze -", status: 0},
		"a warning that matters":          {in: vain, args: "analyze - --fail-on warning", status: 1, says: "1 finding"},
		"a file that is not there":        {args: "analyze none.yaml", status: 2, says: "none.yaml"},
		"no manifest":                     {in: "# nothing\n", args: "analyze -", status: 2, says: "no manifest"},
		"nothing named":                   {args: "analyze", status: 2, says: "Name files"},
		"a flag that is not known":        {args: "analyze - --strict", status: 2, says: "unknown flag"},
		"a severity that is none":         {in: good, args: "analyze - --fail-on bad", status: 2, says: "none of error"},
		"a code that is none":             {in: good, args: "analyze - --ignore AET9999", status: 2, says: `no code "AET9999"`},
		"an output that is none":          {in: good, args: "analyze - -o yaml", status: 2, says: "there is json"},
		"a collector that is none":        {in: good, args: "analyze - --otlp-endpoint=https://c:4317", status: 2, says: "is not host:port"},
		"a collector with no name":        {in: good, args: "analyze - --otlp-endpoint=my_c:4317", status: 2, says: "neither a name nor an address"},
		"a rate that is none":             {in: good, args: "analyze - --trace-sample-rate=2", status: 2, says: "--trace-sample-rate 2 is not in 0..1"},
		"a code that cannot be explained": {args: "explain AET9999", status: 1, says: "lists those that there are"},
	} {
		t.Run(name, func(t *testing.T) {
			out, status, err := try(t, c.in, strings.Fields(c.args)...)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if status != c.status || !strings.Contains(text, c.says) {
				t.Errorf("exit status %d, %q, want %d, %q; it said\n%s", status, text, c.status, c.says, out)
			}
		})
	}
}

func TestAFindingReadsAsACompilersDoes(t *testing.T) {
	out, _, _ := try(t, misspelt, "analyze", "-")
	want := "-:4: error AET4001: MeshConfig/aether-system/default: spec.proxy.accessLogEnabled: is not known and has no effect; did you mean spec.proxy.accessLogsEnabled?\n" +
		"1 document analyzed: 1 error, 0 warnings, 0 info\n"
	if out != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	out, _, _ = try(t, misspelt, "analyze", "-", "-o", "json")
	var list []analyze.Finding
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 || list[0].Line != 4 || list[0].Code != code.MeshUnknown {
		t.Errorf("%v: %s", err, out)
	}
	out, _, _ = try(t, good, "analyze", "-", "-o", "json")
	if out != "[]\n" {
		t.Errorf("of nothing a program reads %q", out)
	}
}

func TestExplainSaysAllOfACode(t *testing.T) {
	out, _, err := try(t, "", "explain", "aet4001")
	for _, want := range []string{"AET4001 (error): ", "To mend it: ", "Example:", "accessLogEnabled", "Mended:", "accessLogsEnabled"} {
		if !strings.Contains(out, want) {
			t.Errorf("%v: it lacks %q:\n%s", err, want, out)
		}
	}
	list, _, _ := try(t, "", "explain")
	for _, c := range code.All() {
		if !strings.Contains(list, string(c.ID)) {
			t.Errorf("%s is not listed", c.ID)
		}
	}
}
