package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

const codesHead = `# Codes of aetherctl analyze

<!-- Made by "make generate" from what aetherctl explain says. -->

What [` + "`aetherctl analyze`" + `](commands.md#aetherctl-analyze) can find. A code never changes its meaning, and one
that is not reported any more is not used again. [` + "`aetherctl explain CODE`" + `](commands.md#aetherctl-explain) says the same.

- *error*: something is not served, or not as it is written.
- *warning*: it is served, but hardly as its author thinks.
- *info*: to be known; nothing need be wrong.

The first digit says what it is about: 0 reading, 1 classes, Gateways and listeners, 2 routes, 3 policies, grants and
parameters, 4 MeshConfigs.

| Code | | |
|---|---|---|
`

// explanation is what is read of "aetherctl explain -o json".
type explanation struct {
	Code, Severity, Title, Meaning, Mend, Scope, Example, Mended string
}

// codes is the page of what an analysis can find.
func codes(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "run", "./cmd/aetherctl", "explain", "-o", "json").Output()
	if err != nil {
		return "", fmt.Errorf("run aetherctl explain: %w", err)
	}
	var all []explanation
	if err := json.Unmarshal(out, &all); err != nil {
		return "", fmt.Errorf("read what aetherctl explain says: %w", err)
	}
	return codesPage(all), nil
}

func codesPage(all []explanation) string {
	var b strings.Builder
	b.WriteString(codesHead)
	for _, c := range all {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s |\n", c.Code, strings.ToLower(c.Code), c.Severity, cell(c.Title))
	}
	for _, c := range all {
		fmt.Fprintf(&b, "\n## %s\n\n*%s*: %s.\n\n%s\n\n%s\n", c.Code, c.Severity, c.Title, c.Meaning, c.Mend)
		if c.Scope != "" {
			fmt.Fprintf(&b, "\nFound only %s.\n", c.Scope)
		}
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```yaml\n%s```\n\nMended:\n\n```yaml\n%s```\n", c.Example, c.Mended)
		}
	}
	return b.String()
}
