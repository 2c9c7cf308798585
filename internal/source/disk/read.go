package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// ErrGone means that there is no file of that name, or that it is a folder.
var ErrGone = errors.New("the file is gone")

// Read returns the content of a file of at most that many bytes. ErrGone if there is none; a
// link to nothing is there and cannot be read. What is no regular file is refused without
// being opened: opening a pipe or a device may have effects. A regular file whose reader has
// to wait, as some of /proc's have, gives ErrNoAnswer.
func (d *Disk) Read(path string, sort Sort, most int64) ([]byte, error) {
	return Ask(d, path, sort, func() ([]byte, error) { return read(path, most, d.cfg.Patience) })
}

func read(path string, most int64, patience time.Duration) ([]byte, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		if _, gone := os.Lstat(path); gone != nil {
			return nil, ErrGone
		}
		return nil, fmt.Errorf("is a link to what is not there: %w", plain(err))
	}
	if err != nil {
		return nil, plain(err)
	}
	if err := readable(info, most); err != nil {
		return nil, err
	}
	// It may have become something else since.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, plain(err)
	}
	defer func() { _ = f.Close() }() // read only: nothing to lose
	if info, err = f.Stat(); err != nil {
		return nil, plain(err)
	}
	if err := readable(info, most); err != nil {
		return nil, err
	}
	// Most files have no deadlines, and are read without waiting for anybody.
	if err := f.SetReadDeadline(time.Now().Add(patience)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return nil, plain(err)
	}
	data := bytes.NewBuffer(make([]byte, 0, info.Size()+bytes.MinRead))
	if _, err := data.ReadFrom(io.LimitReader(f, most+1)); err != nil {
		return nil, plain(err)
	}
	if int64(data.Len()) > most {
		return nil, tooLarge(data.Len(), most)
	}
	return data.Bytes(), nil
}

// readable says why a file is not to be read, if so.
func readable(info fs.FileInfo, most int64) error {
	switch {
	case info.IsDir():
		return ErrGone
	case !info.Mode().IsRegular():
		return fmt.Errorf("is %s, not a regular file", kind(info.Mode()))
	case info.Size() > most:
		return tooLarge(int(info.Size()), most)
	}
	return nil
}

func tooLarge(size int, most int64) error {
	return fmt.Errorf("has at least %d bytes, and at most %d are read", size, most)
}

func kind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "something else"
}

// plain is an error without the path, which who asked knows.
func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s: %w", p.Op, p.Err)
	}
	return err
}
