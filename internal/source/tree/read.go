package tree

import (
	"path"

	"aether.io/aether/internal/source/disk"
)

// MaxFile is the size in bytes of the largest file that is read.
const MaxFile = 32 << 20

// ErrGone means that there is no file of that name any more.
var ErrGone = disk.ErrGone

// Read returns the content of a file. ErrGone if it is no more, or is a folder now; a
// link to nothing is there and cannot be read. What is no regular file is refused, and so
// is, with disk.ErrNoAnswer, what does not answer.
//
// A file in a folder that the tree does not know is gone as well: the folder has been
// made anew, the event that says so is still to be taken, and until then nothing would
// tell that the file goes again.
func (t *Tree) Read(p string) ([]byte, error) {
	d := t.dirs[parent(p)]
	if d == nil {
		return nil, ErrGone
	}
	return t.disk.Read(t.abs(p), disk.Sort(d.links[path.Base(p)]), MaxFile)
}
