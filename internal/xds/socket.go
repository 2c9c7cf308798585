package xds

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// socket is a listening Unix socket that no two processes serve.
type socket struct {
	net.Listener
	path string
	lock *os.File
}

// listen takes the path over. A stale socket there is replaced in one step; one that
// another process serves is an error, and so is anything that is not a socket. The
// socket has mode 0600 from the moment it can be found.
func listen(path string) (*socket, error) {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	l, err := bind(path, lock)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), lock.Close())
	}
	return &socket{Listener: l, path: path, lock: lock}, nil
}

func bind(path string, lock *os.File) (net.Listener, error) {
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("another process serves it: %w", err)
	}
	if fi, err := os.Lstat(path); err == nil && fi.Mode().Type() != os.ModeSocket {
		return nil, errors.New("there is something that is not a socket")
	}
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	err = os.Chmod(tmp, 0o600)
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// release removes the socket and lets another process have the path.
func (s *socket) release() error {
	err := os.Remove(s.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	if cerr := s.Close(); !errors.Is(cerr, net.ErrClosed) {
		err = errors.Join(err, cerr)
	}
	if err = errors.Join(err, s.lock.Close()); err != nil {
		return fmt.Errorf("release %s: %w", s.path, err)
	}
	return nil
}
