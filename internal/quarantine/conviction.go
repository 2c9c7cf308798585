package quarantine

import (
	"crypto/sha256"
	"encoding/json"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
)

// Conviction is why an object is in quarantine. It stands for exactly the content that
// was convicted.
type Conviction struct {
	Content  Content
	Instead  object.Object // the version to use in its place; nil: leave it out
	Resource resource.Name // what was refused because of it
	Detail   string        // what Envoy said
}

// Content tells apart what objects ask for: the SHA-256 of all of an object but its
// metadata and its status. The zero Content is that of no object.
type Content [sha256.Size]byte

// ContentOf is the content of o, which may be nil.
func ContentOf(o object.Object) Content {
	if o == nil {
		return Content{}
	}
	text, err := json.Marshal(o)
	if err != nil {
		return Content{}
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return Content{}
	}
	for _, name := range []string{"apiVersion", "kind", "metadata", "status"} { // who it is, and what others say of it
		delete(fields, name)
	}
	text, err = json.Marshal(fields)
	if err != nil {
		return Content{}
	}
	return sha256.Sum256(text)
}
