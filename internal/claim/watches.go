package claim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Watches is what a release takes for its own.
type Watches struct {
	// Class is the name of the GatewayClass that it claims.
	Class string `json:"gatewayClass"`
	// Namespaces are those whose objects it reads and writes, that of the release with them,
	// sorted. Nil: all, and then every class of Aether's.
	Namespaces []string `json:"namespaces,omitempty"`
}

// encode is Watches as an annotation.
func (w Watches) encode() string {
	out, _ := json.Marshal(w) //nolint:errchkjson // strings
	return string(out)
}

// parse reads encode's output. Fields that it does not know are of a newer release.
func parse(text string) (Watches, error) {
	var w Watches
	if err := json.Unmarshal([]byte(text), &w); err != nil {
		return Watches{}, fmt.Errorf("read what a release watches: %w", err)
	}
	slices.Sort(w.Namespaces)
	w.Namespaces = slices.Compact(w.Namespaces)
	return w, nil
}

// name is of a Lease: another for each other claim, so that a release whose values change
// has one for what it was and one for what it is to be while the one replaces the other.
func (w Watches) name() string { return nameOf(w.encode()) }

// nameOf is the name of the Lease with that annotation, whatever a newer release says in it.
func nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "aether-release-" + hex.EncodeToString(sum[:5])
}

// item is one thing that only one release can have. Its String is for people.
type item struct{ class, namespace string }

// everywhere is all namespaces, which two releases have in common if both take all.
const everywhere = "*"

func (i item) String() string {
	switch {
	case i.class != "":
		return "GatewayClass " + i.class
	case i.namespace == everywhere:
		return "all namespaces"
	}
	return "namespace " + i.namespace
}

// has reports whether an item is among what is watched.
func (w Watches) has(i item) bool {
	if i.class != "" {
		return w.Class == i.class
	}
	return w.Namespaces == nil || slices.Contains(w.Namespaces, i.namespace)
}

// common is what two releases watch both, sorted.
func common(a, b Watches) []item {
	var out []item
	if a.Class == b.Class && a.Class != "" {
		out = append(out, item{class: a.Class})
	}
	switch {
	case a.Namespaces == nil && b.Namespaces == nil:
		return append(out, item{namespace: everywhere})
	case a.Namespaces == nil:
		a, b = b, a
	}
	for _, n := range a.Namespaces {
		if i := (item{namespace: n}); b.has(i) {
			out = append(out, i)
		}
	}
	return out
}

// maxNamed bounds the items that are named.
const maxNamed = 5

// names is items for people.
func names(items []item) string {
	var out []string
	for _, i := range items[:min(len(items), maxNamed)] {
		out = append(out, i.String())
	}
	if more := len(items) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}
