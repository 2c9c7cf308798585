// Package code is the table of what an analysis can find: each has a code that never means
// anything else, how bad it is, what it means, and how it is mended. The command that explains
// them, the reference and the analysis read the same table. It finds nothing itself.
package code

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"slices"
	"strings"

	"aether.io/aether/internal/object"
)

// Severity is how bad a finding is.
type Severity string

// The severities, the worst first.
const (
	Error   Severity = "error"   // something is not served, or not as it is written
	Warning Severity = "warning" // it is served, but hardly as its author thinks
	Info    Severity = "info"    // to be known; nothing need be wrong
)

// AtLeast reports whether s is as bad as other, or worse.
func (s Severity) AtLeast(other Severity) bool { return s.rank() <= other.rank() }

func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// ID is a code, AET and four digits.
type ID string

// Scope is what must be known for a code to be found.
type Scope string

// The scopes.
const (
	Anywhere  Scope = ""                              // in files and on a cluster
	Complete  Scope = "with --complete or -A"         // everything that there is must be given
	Cluster   Scope = "with -A"                       // only a cluster knows
	Instance  Scope = "with --standalone"             // only where nothing maps ports
	Dedicated Scope = "on a Gateway with own proxies" // what shared proxies do not have
)

// Condition is what the controller says of an object with a fault. What is empty does not
// matter.
type Condition struct {
	Kind   object.Kind // what has it
	Type   string      // of the condition
	Reason string
}

// Code is one thing that can be found.
type Code struct {
	ID       ID
	Severity Severity // what it is mostly; a finding's own counts
	Title    string   // one line, lower case, without a period
	Meaning  string   // what comes of it, and why; sentences
	Mend     string   // what to do; sentences
	Scope    Scope
	From     []Condition // conditions that are told by this code; none: it is found elsewhere
}

//go:embed examples
var examples embed.FS

// mended separates what is wrong in an example from what is right.
const mended = "#### mended\n"

// Example is manifests in which the code is found, and the same mended; empty if it takes
// more than manifests.
func (c Code) Example() (wrong, right string) {
	text, err := examples.ReadFile(path.Join("examples", string(c.ID)+".yaml"))
	if err != nil {
		return "", ""
	}
	wrong, right, _ = strings.Cut(string(text), mended)
	return wrong, right
}

// All is every code, sorted.
func All() []Code {
	out := slices.Concat(reading(), gateways(), routes(), policies(), meshConfigs())
	slices.SortFunc(out, func(a, b Code) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Find is the code of that name, in any case.
func Find(name string) (Code, error) {
	want := ID(strings.ToUpper(name))
	for _, c := range All() {
		if c.ID == want {
			return c, nil
		}
	}
	return Code{}, fmt.Errorf("there is no code %q", name)
}

// Of finds the code by which a condition is told: the one that asks for most of it.
func Of(all []Code, c Condition) (Code, bool) {
	var best Code
	found, most := false, -1
	for _, candidate := range all {
		for _, from := range candidate.From {
			fits := (from.Kind == "" || from.Kind == c.Kind) && (from.Type == "" || from.Type == c.Type) && (from.Reason == "" || from.Reason == c.Reason)
			if n := from.asks(); fits && n > most {
				best, found, most = candidate, true, n
			}
		}
	}
	return best, found
}

func (c Condition) asks() int {
	n := 0
	for _, part := range []string{string(c.Kind), c.Type, c.Reason} {
		if part != "" {
			n++
		}
	}
	return n
}

// String is what is explained of a code, as a person reads it.
func (c Code) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s\n\n%s\n\n%s\n", c.ID, c.Severity, c.Title, wrap(c.Meaning), wrap("To mend it: "+c.Mend))
	if c.Scope != Anywhere {
		fmt.Fprintf(&b, "\nFound only %s.\n", c.Scope)
	}
	if wrong, right := c.Example(); wrong != "" {
		fmt.Fprintf(&b, "\nExample:\n\n%s\nMended:\n\n%s", indent(wrong), indent(right))
	}
	return b.String()
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// width is how long a line is at most.
const width = 96

func wrap(text string) string {
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len(word)
	}
	return b.String()
}
