package memory

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/object"
)

// Record is what is remembered of one object across restarts.
type Record struct {
	Key        string    `json:"key"`
	Generation int64     `json:"generation,omitempty"`
	Created    time.Time `json:"created,omitzero"`
	Content    string    `json:"content,omitempty"` // hash, hexadecimal
	Gone       bool      `json:"gone,omitempty"`    // there is nothing to remember any more
}

// Update makes r the record of an object whose content is now that.
func (r *Record) Update(content [sha256.Size]byte, now time.Time) {
	hash := hex.EncodeToString(content[:])
	if r.Generation == 0 {
		r.Created = now
	}
	if r.Content != hash {
		r.Generation++
	}
	r.Content = hash
}

// UID is stable as long as the object is remembered, and another one if it is made again.
func (r *Record) UID() types.UID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s|%d", r.Key, r.Created.UnixNano()))
	h[6] = h[6]&0x0f | 0x80 // version 8: made up by rules of our own
	h[8] = h[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// ReadRecords reads a journal: a record a line, a later one in the place of an earlier
// one. Lines that cannot be read, such as one that was cut short, are counted as bad. There
// are records, if none, also with an error.
func ReadRecords(path string) (records map[object.Key]*Record, lines, bad int, err error) {
	records = map[object.Key]*Record{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records, 0, 0, nil
	}
	if err != nil {
		return records, 0, 0, fmt.Errorf("read what is remembered of objects: %w", err)
	}
	for line := range bytes.Lines(data) {
		lines++
		var r Record
		err := json.Unmarshal(line, &r)
		key, keyErr := object.ParseKey(r.Key)
		switch {
		case cmp.Or(err, keyErr) != nil || (!r.Gone && r.Generation < 1):
			bad++
		case r.Gone:
			delete(records, key)
		default:
			records[key] = &r
		}
	}
	return records, lines, bad, nil
}
