package lastgood

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	fileName = "last-good"
	header   = 8       // length and checksum of a record, big endian
	slack    = 1 << 20 // bytes that the file may exceed twice its image's size by
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Store is the file. It has one owner.
type Store struct {
	dir  string
	file *os.File
	size int64 // of the file
	base int64 // of its first record, which is the whole image at that time
	gap  bool  // a step is missing in the file
}

// Open reads the file in dir and makes both if they are missing: dir with mode 0700,
// the file with 0600. It returns where the records lead that are intact from the
// first on, and how many bytes after them were not, which are cut off.
func Open(dir string) (*Store, *Image, int64, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, 0, fmt.Errorf("open last-good: %w", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return nil, nil, 0, fmt.Errorf("open last-good: %w", err)
	}
	path := filepath.Join(dir, fileName)
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, 0, fmt.Errorf("open last-good: %w", err)
	}
	im, good, base := replay(data)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("open last-good: %w", err)
	}
	err = errors.Join(f.Chmod(0o600), f.Truncate(good))
	if err != nil {
		return nil, nil, 0, errors.Join(fmt.Errorf("open last-good: %w", err), f.Close())
	}
	return &Store{dir: dir, file: f, size: good, base: base}, im, int64(len(data)) - good, nil
}

// replay applies intact records up to the first that is not. It returns the image,
// the length of the intact part and of its first record.
func replay(data []byte) (im *Image, good, base int64) {
	im = NewImage()
	// Exits: no intact record follows.
	for rest := data; len(rest) >= header; {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-header {
			break
		}
		body := rest[header : header+n]
		if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(rest[4:]) {
			break
		}
		r, err := decode(body)
		if err != nil {
			break
		}
		im.Apply(r)
		rest = rest[header+n:]
		good += int64(header + n)
		if base == 0 {
			base = good
		}
	}
	return im, good, base
}

// Append adds a step; im is where it leads. Its cost follows the step, but for the
// times when the file has grown far beyond the image and is written anew.
func (s *Store) Append(r Record, im *Image) error {
	framed, err := frame(r)
	if err != nil {
		return fmt.Errorf("append to last-good: %w", err)
	}
	if s.gap || s.size+int64(len(framed)) > 2*s.base+slack {
		return s.compact(im)
	}
	// One write: a process that is killed leaves a whole record or a torn last one.
	n, err := s.file.Write(framed)
	if err != nil {
		s.gap = true
		return errors.Join(fmt.Errorf("append to last-good: %w", err), s.file.Truncate(s.size))
	}
	s.size += int64(n)
	if s.base == 0 {
		s.base = s.size
	}
	return nil
}

// compact writes the image to a new file that then takes the old one's place.
func (s *Store) compact(im *Image) error {
	framed, err := frame(im.Record())
	if err != nil {
		return fmt.Errorf("compact last-good: %w", err)
	}
	path := filepath.Join(s.dir, fileName)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("compact last-good: %w", err)
	}
	_, err = f.Write(framed)
	if err == nil {
		err = f.Sync() // before the rename, or a crash of the machine could leave an empty file
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("compact last-good: %w", err), f.Close())
	}
	old := s.file
	s.file, s.size, s.base, s.gap = f, int64(len(framed)), int64(len(framed)), false
	if err := old.Close(); err != nil {
		return fmt.Errorf("compact last-good: close the old file: %w", err)
	}
	return nil
}

// Size is the length of the file in bytes.
func (s *Store) Size() int64 { return s.size }

// Close closes the file.
func (s *Store) Close() error {
	if err := s.file.Close(); err != nil {
		return fmt.Errorf("close last-good: %w", err)
	}
	return nil
}

func frame(r Record) ([]byte, error) {
	body, err := r.encode()
	if err != nil {
		return nil, err
	}
	if len(body) > 1<<31 {
		return nil, fmt.Errorf("record of %d bytes is too large", len(body))
	}
	var b bytes.Buffer
	b.Grow(header + len(body))
	var h [header]byte
	binary.BigEndian.PutUint32(h[:], uint32(len(body)))
	binary.BigEndian.PutUint32(h[4:], crc32.Checksum(body, castagnoli))
	b.Write(h[:])
	b.Write(body)
	return b.Bytes(), nil
}
