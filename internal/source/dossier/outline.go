package dossier

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/manifest"
)

// outline knows the lines of a file. It is made when the first is asked for: most files have
// nothing wrong with them.
type outline struct {
	text []byte
	once sync.Once
	docs []*yaml.Node // those that are not empty, as package manifest counts them
}

func (o *outline) read() []*yaml.Node {
	o.once.Do(func() {
		in := yaml.NewDecoder(bytes.NewReader(o.text))
		// Exits: the end, or what this reader cannot read, of which no line is known then.
		for {
			var doc yaml.Node
			if in.Decode(&doc) != nil {
				return
			}
			if len(doc.Content) == 1 && doc.Content[0].Tag != "!!null" {
				o.docs = append(o.docs, doc.Content[0])
			}
		}
	})
	return o.docs
}

// of is the lines of the fields of one document, or of the item of a List that has the key.
func (o *outline) of(number int, k object.Key) func(path string) int {
	return func(path string) int {
		docs := o.read()
		if number < 1 || number > len(docs) {
			return 0
		}
		n := docs[number-1]
		if items := child(n, "items"); items != nil && k != (object.Key{}) {
			n = item(items, k)
		}
		if n == nil {
			return 0
		}
		return line(n, path)
	}
}

// item is the object of a List that has the key.
func item(list *yaml.Node, k object.Key) *yaml.Node {
	for _, n := range list.Content {
		kind, meta := child(n, "kind"), child(n, "metadata")
		if kind == nil || meta == nil || kind.Value != string(k.Kind) {
			continue
		}
		name, namespace := child(meta, "name"), child(meta, "namespace")
		if name != nil && name.Value == k.Name && (namespace == nil || namespace.Value == k.Namespace) {
			return n
		}
	}
	return nil
}

// line is where the field at a path begins, or the deepest of what has it that is there.
func line(n *yaml.Node, path string) int {
	at := n.Line
	for _, step := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' }) {
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		next := (*yaml.Node)(nil)
		switch n.Kind {
		case yaml.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				if n.Content[i].Value == step {
					at, next = n.Content[i].Line, n.Content[i+1]
				}
			}
		case yaml.SequenceNode:
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
				next = n.Content[i]
				at = next.Line
			}
		default: // it has nothing below it
		}
		if next == nil {
			return at
		}
		n = next
	}
	return at
}

func child(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// broken is the line that an error names, else the one at which its document begins.
func (o *outline) broken(err *manifest.SyntaxError) func(string) int {
	if m := regexp.MustCompile(`\bline (\d+)`).FindStringSubmatch(err.Err.Error()); m != nil {
		if n, convErr := strconv.Atoi(m[1]); convErr == nil {
			return func(string) int { return n }
		}
	}
	return o.of(err.Document, object.Key{})
}
