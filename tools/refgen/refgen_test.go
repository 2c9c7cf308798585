package main

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestAFieldSaysItsRangeAndItsRules(t *testing.T) {
	var s schema
	if err := yaml.Unmarshal([]byte(`
properties:
  a:
    description: |-
      Two
      lines | one cell.
    type: object
    x-kubernetes-validations: [{rule: "true", message: no b without c}]
    properties:
      b: {type: integer, minimum: 0, maximum: 4294967295, description: Default 3.}
      c: {type: array, maxItems: 4, items: {type: string, format: cidr}}
      mode: {type: string, enum: [Shared, "Off"]}
      affinity: {type: object, properties: {podAffinity: {type: object}}}
`), &s); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	rows(&b, "", s)
	want := "| `a` | object | Two lines \\| one cell. Rule: no b without c. |\n" +
		"| `a.affinity` | Affinity of a Pod |  |\n" +
		"| `a.b` | integer, 0 to 4294967295 | Default 3. |\n" +
		"| `a.c` | list of cidr, at most 4 |  |\n" +
		"| `a.mode` | `Shared`, `Off` |  |\n"
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestCommandsAreThoseOfTheHelp(t *testing.T) {
	text := "Usage:\n  x [command]\n\nAvailable Commands:\n  completion  Generate\n  get         Show\n  help        Help\n  status      Tell\n\nFlags:\n  -h\n"
	if got := subcommands(text); !slices.Equal(got, []string{"get", "status"}) {
		t.Errorf("got %v", got)
	}
	if got := subcommands("Flags:\n"); got != nil {
		t.Errorf("a program without commands has %v", got)
	}
}

func TestACodeHasTheHeadingThatTheTableLinksTo(t *testing.T) {
	page := codesPage([]explanation{{Code: "AET0001", Severity: "error", Title: "a | b", Meaning: "It is so.", Mend: "Mend it.", Scope: "with -A", Example: "a: 1\n", Mended: "a: 2\n"}})
	for _, want := range []string{"| [AET0001](#aet0001) | error | a \\| b |\n", "\n## AET0001\n\n*error*: a | b.\n", "Found only with -A.", "```yaml\na: 1\n```\n\nMended:\n\n```yaml\na: 2\n```"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}
