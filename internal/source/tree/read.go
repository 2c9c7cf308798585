package tree

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// MaxFile is the size in bytes of the largest file that is read.
const MaxFile = 32 << 20

// ErrGone means that there is no file of that name any more.
var ErrGone = errors.New("the file is gone")

// Read returns the content of a file. ErrGone if it is no more, or is a folder now; a
// link to nothing is there and cannot be read. What is no regular file is refused
// without waiting for it.
//
// A file in a folder that the tree does not know is gone as well: the folder has been
// made anew, the event that says so is still to be taken, and until then nothing would
// tell that the file goes again.
func (t *Tree) Read(p string) ([]byte, error) {
	if t.dirs[parent(p)] == nil {
		return nil, ErrGone
	}
	name := t.abs(p)
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		if _, gone := os.Lstat(name); gone != nil {
			return nil, ErrGone
		}
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, ErrGone
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("read %s: is not a regular file", p)
	case info.Size() > MaxFile:
		return nil, fmt.Errorf("read %s: has %d bytes, at most %d are read", p, info.Size(), MaxFile)
	}
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, MaxFile)); err != nil {
		return nil, err
	}
	return data.Bytes(), nil
}
