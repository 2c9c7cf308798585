package tree

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mask is what is asked of a directory. Not IN_MODIFY: a file that is written in place is
// whole when its writer closes it, and half before. ATTRIB is how a file that could not
// be read becomes readable.
const mask = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_CREATE |
	unix.IN_DELETE | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR

// maxQueued bounds the events that wait for Take; past it they are dropped and the whole
// tree is read again, as when the kernel's own queue overflows.
const maxQueued = 1 << 16

// notifier reads events from the kernel as they come, so that its queue stays short.
type notifier struct {
	fd   int
	file *os.File
	wake chan struct{} // capacity 1: something is in the queue
	now  func() time.Time
	done chan struct{} // closed when the reader has gone

	mu       sync.Mutex // guards what follows
	queue    []event
	first    time.Time // when the oldest event in the queue was read
	overflow bool
}

func newNotifier(now func() time.Time) (*notifier, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("open inotify: %w (see fs.inotify.max_user_instances)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open inotify: %w", err)
	}
	n := &notifier{
		fd: fd, file: os.NewFile(uintptr(fd), "inotify"), now: now,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go n.read()
	return n, nil
}

// read ends when close makes reading fail.
func (n *notifier) read() {
	defer close(n.done)
	buf := make([]byte, 64<<10)
	for {
		size, err := n.file.Read(buf)
		if err != nil {
			return
		}
		n.push(parseEvents(buf[:size]))
	}
}

func (n *notifier) push(events []event) {
	n.mu.Lock()
	if len(n.queue) == 0 && !n.overflow {
		n.first = n.now()
	}
	n.queue = append(n.queue, events...)
	for _, e := range events {
		n.overflow = n.overflow || e.lost
	}
	if len(n.queue) > maxQueued {
		n.queue, n.overflow = nil, true
	}
	n.mu.Unlock()
	n.poke()
}

// poke wakes who takes.
func (n *notifier) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (n *notifier) take() (events []event, first time.Time, overflow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	events, first, overflow = n.queue, n.first, n.overflow
	n.queue, n.first, n.overflow = nil, time.Time{}, false
	return events, first, overflow
}

// add watches a directory, following symbolic links; the same directory has the same number.
func (n *notifier) add(path string) (int, error) {
	wd, err := unix.InotifyAddWatch(n.fd, path, mask)
	if errors.Is(err, unix.ENOSPC) {
		return 0, fmt.Errorf("watch: %w (see fs.inotify.max_user_watches)", err)
	}
	if err != nil {
		return 0, &os.PathError{Op: "watch", Path: path, Err: err}
	}
	return wd, nil
}

// remove may come too late for a directory that is gone; that is fine.
func (n *notifier) remove(wd int) {
	_, _ = unix.InotifyRmWatch(n.fd, uint32(wd))
}

func (n *notifier) close() {
	_ = n.file.Close()
	<-n.done
}

func parseEvents(buf []byte) []event {
	var out []event
	for len(buf) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(buf[0:])) // -1 for an overflow
		bits := binary.NativeEndian.Uint32(buf[4:])
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		if size > len(buf) {
			break
		}
		name, _, _ := bytes.Cut(buf[unix.SizeofInotifyEvent:size], []byte{0})
		buf = buf[size:]
		e := event{wd: int(wd), name: string(name), dir: bits&unix.IN_ISDIR != 0, lost: bits&unix.IN_Q_OVERFLOW != 0}
		switch {
		case bits&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
			e.what = written
		case bits&unix.IN_CREATE != 0:
			e.what = created
		case bits&(unix.IN_MOVED_FROM|unix.IN_DELETE) != 0:
			e.what = removed
		case bits&unix.IN_ATTRIB != 0:
			e.what = touched
		case bits&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT) != 0:
			e.what = self
		case bits&unix.IN_IGNORED != 0:
			e.what = ended
		}
		out = append(out, e)
	}
	return out
}

// links is the number of names that a file has.
func links(info fs.FileInfo) uint64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Nlink) //nolint:unconvert // its width differs between architectures
	}
	return 1
}
