package status

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// encode gives v, as JSON has it, as YAML in block style with sorted keys. It does not go
// through a YAML library, which takes fifty times the memory, and there is a status for
// each route.
func encode(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	in := json.NewDecoder(bytes.NewReader(data))
	in.UseNumber()
	var tree map[string]any
	if err := in.Decode(&tree); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	var t text
	t.fields(tree, 0, false)
	return t.Bytes(), nil
}

type text struct{ bytes.Buffer }

func (t *text) indent(depth int) {
	for range depth {
		t.WriteString("  ")
	}
}

// fields writes an object's fields, a line each; the first continues the present line if asked to.
func (t *text) fields(m map[string]any, depth int, continues bool) {
	for i, k := range slices.Sorted(maps.Keys(m)) {
		if i > 0 || !continues {
			t.indent(depth)
		}
		t.scalar(k)
		t.WriteByte(':')
		t.value(m[k], depth)
	}
}

// value writes what stands behind a colon.
func (t *text) value(v any, depth int) {
	switch v := v.(type) {
	case map[string]any:
		if len(v) > 0 {
			t.WriteByte('\n')
			t.fields(v, depth+1, false)
			return
		}
	case []any:
		if len(v) > 0 {
			t.WriteByte('\n')
			t.items(v, depth)
			return
		}
	}
	t.WriteByte(' ')
	t.scalar(v)
	t.WriteByte('\n')
}

func (t *text) items(l []any, depth int) {
	for _, v := range l {
		t.indent(depth)
		t.WriteByte('-')
		if m, ok := v.(map[string]any); ok && len(m) > 0 {
			t.WriteByte(' ')
			t.fields(m, depth+1, true)
			continue
		}
		t.value(v, depth+1)
	}
}

// scalar writes what fits on a line: a scalar, or an object or list of nothing.
func (t *text) scalar(v any) {
	if s, ok := v.(string); ok && plain(s) {
		t.WriteString(s)
		return
	}
	out := json.NewEncoder(&t.Buffer) // JSON's scalars are YAML's
	out.SetEscapeHTML(false)
	_ = out.Encode(v)       // it came from JSON
	t.Truncate(t.Len() - 1) // the line's end
}

// plain reports whether a text needs no quotes; some that need none get them.
func plain(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !('0' <= c && c <= '9') && strings.IndexByte(" _./-", c) < 0) {
			return false
		}
	}
	if s == "" || s[len(s)-1] == ' ' {
		return false
	}
	switch strings.ToLower(s) {
	case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		return false
	}
	return true
}
