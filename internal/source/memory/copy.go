package memory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// copyName is the file that keeps the last good copy of a manifest file.
func copyName(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:12]) + ".json"
}

// isCopy reports whether a name is one that copyName makes, or is written on the way to one.
func isCopy(name string) bool {
	hash, ok := strings.CutSuffix(strings.TrimPrefix(name, ".new-"), ".json")
	_, err := hex.DecodeString(hash)
	return ok && err == nil && len(hash) == 24
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
	err := os.WriteFile(temp, data, 0o600)
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // a part of it would take the room that there is
	}
	return err
}

// ReadCopies reads every copy: the files that it names, with their objects. There are none
// where there is no directory.
func ReadCopies(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the last good copies: %w", err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if !isCopy(e.Name()) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		path, objects, err := readFile(filepath.Join(dir, e.Name()))
		if err == nil {
			out[path] = objects
		}
	}
	return out, nil
}

// ReadCopy returns the last good objects of a file, as a stream of JSON.
func ReadCopy(dir, path string) ([]byte, error) {
	_, objects, err := readFile(filepath.Join(dir, copyName(path)))
	return objects, err
}

func readFile(name string) (path string, objects []byte, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return "", nil, err
	}
	return decodeCopy(data)
}
