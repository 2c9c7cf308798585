package manifest

import (
	"bytes"
	"fmt"

	goyaml "go.yaml.in/yaml/v2"
)

// maxExpanded bounds what a document may say with its aliases replaced, in bytes.
const maxExpanded = 32 << 20

// bounded refuses a document whose aliases would make it grow beyond all measure as JSON.
// The YAML reader bounds how many aliases it follows, but not how long what they stand for is.
func bounded(text []byte) error {
	if bytes.IndexByte(text, '&') < 0 || bytes.IndexByte(text, '*') < 0 {
		return nil
	}
	var content any
	// Text that is no YAML is found out by whoever converts it.
	if err := goyaml.Unmarshal(text, &content); err == nil && sizeOf(content, maxExpanded) <= 0 {
		return fmt.Errorf("says more than %d bytes with its aliases replaced", maxExpanded)
	}
	return nil
}

// sizeOf returns what is left of room after v; strings that are shared count each time.
func sizeOf(v any, room int) int {
	switch v := v.(type) {
	case string:
		return room - len(v)
	case []any:
		for i := 0; i < len(v) && room > 0; i++ {
			room = sizeOf(v[i], room)
		}
	case map[any]any:
		for key, value := range v {
			if room = sizeOf(value, sizeOf(key, room)); room <= 0 {
				break
			}
		}
	}
	return room - 1
}
