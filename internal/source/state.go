package source

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
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/watermark"
)

// reserve is how many positions are claimed at a time. A position is on disk before it is
// used, so that a process that is killed never starts again behind what proxies have seen;
// with this many, that is one write at the start.
const reserve = 1 << 20

// position is the epoch and sequence of a state directory.
type position struct {
	Epoch   uint64 `json:"epoch"`
	Ceiling uint64 `json:"ceiling"` // no position above it has been used

	path string
	next uint64 // the last position used
	mark watermark.Mark
}

// openPosition continues after everything that was used before. With no record, or one
// that cannot be read, a new epoch begins: the time, so it is above those before. The
// error that made it so is lost; another is fatal.
func openPosition(path string, now time.Time) (p *position, lost, err error) {
	p = &position{path: path}
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, p)
	}
	if err == nil && p.Epoch == 0 {
		err = errors.New("no epoch in " + path)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			lost = err
		}
		p.Epoch, p.Ceiling = uint64(max(now.UnixMilli(), 1)), 0
	}
	p.next = p.Ceiling
	if err := p.claim(); err != nil {
		return nil, lost, err
	}
	p.next++ // the state at the start is itself later than anything before
	p.mark = watermark.Mark{Epoch: p.Epoch, Positions: map[string]uint64{}}
	for _, k := range object.Kinds() {
		p.mark.Positions[string(k)] = p.next
	}
	return p, lost, nil
}

func (p *position) claim() error {
	p.Ceiling = p.next + reserve
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := atomicfile.Write(p.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("claim positions: %w", err)
	}
	return nil
}

// advance uses the next position for a change of an object of that kind.
func (p *position) advance(k object.Kind) (uint64, error) {
	if p.next == p.Ceiling {
		if err := p.claim(); err != nil {
			return 0, err
		}
	}
	p.next++
	p.mark.Positions[string(k)] = p.next
	return p.next, nil
}

// record is what is remembered of one object across restarts.
type record struct {
	Key        string    `json:"key"`
	Generation int64     `json:"generation,omitempty"`
	Created    time.Time `json:"created,omitzero"`
	Content    string    `json:"content,omitempty"` // hash, hexadecimal
	Gone       bool      `json:"gone,omitempty"`    // there is nothing to remember any more
}

// update makes r the record of an object whose content is now that.
func (r *record) update(content [sha256.Size]byte, now time.Time) {
	hash := hex.EncodeToString(content[:])
	if r.Generation == 0 {
		r.Created = now
	}
	if r.Content != hash {
		r.Generation++
	}
	r.Content = hash
}

// uid is stable as long as the object is remembered, and another one if it is made again.
func (r *record) uid() types.UID {
	h := sha256.Sum256(fmt.Appendf(nil, "%s|%d", r.Key, r.Created.UnixNano()))
	h[6] = h[6]&0x0f | 0x80 // version 8: made up by rules of our own
	h[8] = h[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16]))
}

// readRecords reads a journal: a record a line, a later one in the place of an earlier
// one. Lines that cannot be read, such as one that was cut short, are counted as bad.
func readRecords(path string) (records map[object.Key]*record, lines, bad int, err error) {
	records = map[object.Key]*record{}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return records, 0, 0, nil
	}
	if err != nil {
		return nil, 0, 0, fmt.Errorf("read what is remembered of objects: %w", err)
	}
	for line := range bytes.Lines(data) {
		lines++
		var r record
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

// copyName is the file that keeps the last good copy of a manifest file.
func copyName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:12]) + ".json"
}

// encodeCopy is a line that names the file, then its objects as they were written.
func encodeCopy(path string, raws [][]byte) ([]byte, error) {
	head, err := json.Marshal(map[string]string{"file": path})
	if err != nil {
		return nil, err
	}
	out := bytes.NewBuffer(append(head, '\n'))
	for _, raw := range raws {
		if err := json.Compact(out, raw); err != nil {
			return nil, err
		}
		out.WriteByte('\n')
	}
	return out.Bytes(), nil
}

// decodeCopy splits what encodeCopy made.
func decodeCopy(data []byte) (path string, objects []byte, err error) {
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	var head struct{ File string }
	if err := json.Unmarshal(line, &head); err != nil {
		return "", nil, err
	}
	if head.File == "" {
		return "", nil, errors.New("names no file")
	}
	return head.File, rest, nil
}

// replaceFile is atomicfile.Write without waiting for the disk, which would take minutes
// for thousands of copies. A copy that a power cut destroys is noticed when it is read.
func replaceFile(path string, data []byte) error {
	temp := filepath.Join(filepath.Dir(path), ".new-"+filepath.Base(path))
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, path)
}
