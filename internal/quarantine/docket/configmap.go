package docket

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
)

// Key is the ConfigMap's.
const Key = "convictions.json"

// mostBytes is how much is kept: a ConfigMap holds little more.
const mostBytes = 900 << 10

// Place is a ConfigMap.
type Place interface {
	Await(ctx context.Context) (configmap.Content, error)
	Save(ctx context.Context, c configmap.Content) error
	String() string
}

// Map is a docket in a ConfigMap, which is there while somebody is convicted.
type Map struct {
	Place Place
	// OnFault is called with what is not kept, as there is no room; nil: everything is. Required.
	OnFault func(error)
}

// Load returns the convictions that were saved last, when the API answers. What can be
// read is returned also with an error.
func (m Map) Load(ctx context.Context) (map[object.Key]quarantine.Conviction, error) {
	content, err := m.Place.Await(ctx)
	if err != nil {
		return nil, fmt.Errorf("read convictions: %w", err)
	}
	text := content.Text[Key]
	if text == "" {
		return nil, nil //nolint:nilnil // a nil map is an empty one
	}
	return decode([]byte(text), m.Place.String())
}

// Save replaces what is saved. Of what does not fit first the versions in the objects'
// places are left out, the longest first: where one is not known the object is left out
// after a restart, and its neighbors are not. Then whole convictions are, which would
// have to be found anew.
func (m Map) Save(ctx context.Context, convicted map[object.Key]quarantine.Conviction) error {
	entries, err := encode(convicted)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		m.OnFault(nil)
		return m.Place.Save(ctx, configmap.Content{})
	}
	var left []string
	for {
		text, err := format(entries)
		if err != nil {
			return err
		}
		if len(text) <= mostBytes {
			if err := m.Place.Save(ctx, configmap.Content{Text: map[string]string{Key: string(text)}}); err != nil {
				return err
			}
			break
		}
		var dropped string
		entries, dropped = shorten(entries)
		left = append(left, dropped)
	}
	if len(left) > 0 {
		m.OnFault(errors.New("there is no room for the last good versions of quarantined objects, which a restart leaves out: " + strings.Join(left[:min(len(left), 5)], ", ")))
	} else {
		m.OnFault(nil)
	}
	return nil
}

// shorten leaves out the longest version, or else the last entry; there is at least one.
func shorten(entries []entry) (rest []entry, of string) {
	longest := 0
	for i := range entries {
		if len(entries[i].Instead) > len(entries[longest].Instead) {
			longest = i
		}
	}
	if of = entries[longest].Object; len(entries[longest].Instead) > 0 {
		entries[longest].Instead = nil
		return entries, of
	}
	last := len(entries) - 1
	return entries[:last], entries[last].Object
}
