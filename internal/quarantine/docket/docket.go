// Package docket keeps the convictions of a court, in a file or in a ConfigMap, so that a
// controller that starts again does not have to search for what it had found, and still
// knows which version of a convicted object Envoy accepted.
package docket

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/resource"
)

// File is a docket on disk, readable by its owner only. Its directory must exist.
type File struct{ Path string }

// entry is a conviction as it is written.
type entry struct {
	Object   string          `json:"object"`            // Kind/namespace/name
	Content  string          `json:"content"`           // that was convicted: hash, hexadecimal
	Instead  json.RawMessage `json:"instead,omitempty"` // the object in its place; absent: it is left out
	TypeURL  string          `json:"typeURL"`           // of the resource that was refused
	Resource string          `json:"resource"`          // its name
	Detail   string          `json:"detail"`            // what Envoy said
}

// Load returns the convictions that were saved last; none were if there is no file. What
// can be read is returned also with an error.
func (f File) Load(context.Context) (map[object.Key]quarantine.Conviction, error) {
	text, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // a nil map is an empty one
	}
	if err != nil {
		return nil, fmt.Errorf("read convictions: %w", err)
	}
	return decode(text, f.Path)
}

// Save replaces what is saved.
func (f File) Save(_ context.Context, convicted map[object.Key]quarantine.Conviction) error {
	entries, err := encode(convicted)
	if err != nil {
		return err
	}
	text, err := format(entries)
	if err != nil {
		return err
	}
	return atomicfile.Write(f.Path, text, 0o600)
}

// encode lists convictions, sorted.
func encode(convicted map[object.Key]quarantine.Conviction) ([]entry, error) {
	entries := make([]entry, 0, len(convicted))
	for k, v := range convicted {
		e := entry{Object: k.String(), Content: hex.EncodeToString(v.Content[:]), TypeURL: v.Resource.TypeURL, Resource: v.Resource.Name, Detail: v.Detail}
		if v.Instead != nil {
			text, err := json.Marshal(v.Instead)
			if err != nil {
				return nil, fmt.Errorf("encode conviction of %s: %w", k, err)
			}
			e.Instead = text
		}
		entries = append(entries, e)
	}
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.Object, b.Object) })
	return entries, nil
}

func format(entries []entry) ([]byte, error) {
	text, err := json.MarshalIndent(entries, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encode convictions: %w", err)
	}
	return append(text, '\n'), nil
}

// decode reads convictions from a place; what can be read is returned also with an error.
func decode(text []byte, place string) (map[object.Key]quarantine.Conviction, error) {
	var entries []entry
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("read convictions in %s: %w", place, err)
	}
	out := make(map[object.Key]quarantine.Conviction, len(entries))
	var bad []error
	for _, e := range entries {
		k, v, err := e.decode()
		if err != nil {
			bad = append(bad, fmt.Errorf("read convictions in %s: %w", place, err))
			continue
		}
		out[k] = v
	}
	return out, errors.Join(bad...)
}

func (e entry) decode() (object.Key, quarantine.Conviction, error) {
	fail := func(err error) (object.Key, quarantine.Conviction, error) {
		return object.Key{}, quarantine.Conviction{}, fmt.Errorf("conviction of %q: %w", e.Object, err)
	}
	k, err := object.ParseKey(e.Object)
	if err != nil {
		return fail(err)
	}
	v := quarantine.Conviction{Resource: resource.Name{TypeURL: e.TypeURL, Name: e.Resource}, Detail: e.Detail}
	content, err := hex.DecodeString(e.Content)
	if err != nil || len(content) != len(v.Content) {
		return fail(fmt.Errorf("content %q: want %d hexadecimal digits", e.Content, 2*len(v.Content)))
	}
	v.Content = quarantine.Content(content)
	if e.Instead == nil {
		return k, v, nil
	}
	if k.Kind != object.HTTPRoute {
		return fail(errors.New("only routes are ever convicted"))
	}
	var o gatewayv1.HTTPRoute
	if err := json.Unmarshal(e.Instead, &o); err != nil {
		return fail(fmt.Errorf("the version in its place: %w", err))
	}
	if o.Namespace != k.Namespace || o.Name != k.Name {
		return fail(fmt.Errorf("the version in its place is of %s/%s", o.Namespace, o.Name))
	}
	v.Instead = &o
	return k, v, nil
}
