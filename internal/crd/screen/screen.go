// Package screen passes objects that are plainly good: of known fields only, defaulted,
// and valid by their structural schema and its CEL rules. It is for the usual case, which
// it decides in one walk and without making anything but the defaults. It says nothing of
// the rest, not even that it is bad: that is the library's part, which is slower and
// explains.
//
// So it may be narrow but must not be lax. What it has no code for (a null, a number that
// is no integer, anyOf, a large object), and whatever differs, does not pass.
//
// A schema goes in once; objects go in and are given their defaults in place.
package screen

import (
	"regexp"
	"slices"
	"unicode/utf8"

	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// MaxValues is how many values an object may have. It bounds the time that one takes.
const MaxValues = 4096

// Screen is the screen of one schema. It is immutable and safe for concurrent use.
type Screen struct{ root *node }

// New compiles the schema of a whole resource. Where it holds what the screen does not
// know, objects with a value there will not pass. Its error is about a rule that does not
// compile.
func New(s *structural.Structural) (*Screen, error) {
	p, err := newPlanner()
	if err != nil {
		return nil, err
	}
	root, err := p.root(s)
	if err != nil {
		return nil, err
	}
	return &Screen{root: root}, nil
}

// Pass reports whether obj is plainly good. If it is, obj has its defaults set and nothing
// of it is to be pruned. If not, obj may have some of its defaults.
func (s *Screen) Pass(obj map[string]any) bool {
	w := walk{left: MaxValues}
	return w.pass(s.root, obj)
}

// kind is what a node takes.
type kind uint8

const (
	nothing kind = iota // not known here: no value passes
	object
	array
	text
	integer
	boolean
)

// node is one node of a schema.
type node struct {
	kind     kind
	min, max int64 // of an integer, of the runes of a text, the items of an array, the fields of an object

	root     bool // of the resource: its type and metadata are not the schema's
	fields   map[string]*node
	rest     *node // of fields that have no name in the schema; nil: there may be none
	presets  []preset
	required []string

	items  *node
	unique bool     // no two items are equal
	keys   []string // no two items are equal in these fields

	format   string // if not empty, one that strfmt knows
	pattern  *regexp.Regexp
	texts    []string // if not nil, the only ones
	integers []int64  // if not nil, the only ones
	good     *string  // a text that is known to be: the default

	rules  []rule
	schema *schema // by which the rules see values
}

// preset is the default of a field.
type preset struct {
	field string
	value any
}

// walk is one Pass under way.
type walk struct {
	left  int    // values that may still come
	spent uint64 // at most, by the rules so far
	self  self
}

func (w *walk) pass(n *node, v any) bool {
	if w.left--; w.left < 0 {
		return false
	}
	ok := false
	switch n.kind {
	case nothing:
	case object:
		m, is := v.(map[string]any)
		ok = is && w.object(n, m)
	case array:
		l, is := v.([]any)
		ok = is && w.array(n, l)
	case text:
		s, is := v.(string)
		ok = is && n.text(s)
	case integer:
		i, is := v.(int64)
		ok = is && n.integer(i)
	case boolean:
		_, ok = v.(bool)
	}
	return ok && (len(n.rules) == 0 || w.obeys(n, v))
}

func (w *walk) object(n *node, m map[string]any) bool {
	for _, p := range n.presets {
		if _, set := m[p.field]; !set {
			m[p.field] = runtime.DeepCopyJSONValue(p.value)
		}
	}
	if !n.sized(len(m)) {
		return false
	}
	for _, name := range n.required {
		if _, set := m[name]; !set {
			return false
		}
	}
	for name, v := range m {
		f := n.fields[name]
		switch {
		case n.root && name == "metadata":
			if _, is := v.(map[string]any); !is {
				return false
			}
			continue
		case f == nil && n.rest == nil:
			return false
		case f == nil:
			f = n.rest
		}
		if !w.pass(f, v) {
			return false
		}
	}
	return true
}

func (w *walk) array(n *node, l []any) bool {
	if !n.sized(len(l)) {
		return false
	}
	for _, v := range l {
		if !w.pass(n.items, v) {
			return false
		}
	}
	return !n.unique && n.keys == nil || n.distinct(l)
}

func (n *node) sized(size int) bool { return int64(size) >= n.min && int64(size) <= n.max }

func (n *node) text(s string) bool {
	if n.good != nil && s == *n.good {
		return true
	}
	if n.min > 0 || n.max < int64(len(s)) { // no more runes than bytes
		if !n.sized(utf8.RuneCountInString(s)) {
			return false
		}
	}
	if n.texts != nil && !slices.Contains(n.texts, s) {
		return false
	}
	if n.format != "" && !strfmt.Default.Validates(n.format, s) {
		return false
	}
	return n.pattern == nil || n.pattern.MatchString(s)
}

func (n *node) integer(i int64) bool {
	return i >= n.min && i <= n.max && (n.integers == nil || slices.Contains(n.integers, i))
}

// distinct compares each item with each: lists are short, and those that are not do not pass.
func (n *node) distinct(l []any) bool {
	const short = 64
	if len(l) > short {
		return false
	}
	for i := range l {
		for j := range i {
			if n.same(l[i], l[j]) {
				return false
			}
		}
	}
	return true
}

// same compares items that have passed: scalars if unique, objects if there are keys, of
// which none holds but scalars.
func (n *node) same(a, b any) bool {
	if n.unique {
		return a == b
	}
	x, y := a.(map[string]any), b.(map[string]any)
	for _, k := range n.keys {
		if x[k] != y[k] {
			return false
		}
	}
	return true
}
