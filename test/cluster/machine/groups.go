package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A machine's programs and pods are in control groups below one of the machine's own,
// which is all that they see: a control group namespace. Its first process is not: that
// stays in the groups of whoever started it, and can be ended with them.

// hierarchy is a file system of control groups.
type hierarchy struct {
	path string // where it is mounted
	kind string // cgroup or cgroup2
	data string // the controllers of a cgroup, as mount wants them
}

// hierarchies lists those that are mounted. It is an error if there are none.
func hierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []hierarchy
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// See proc_pid_mountinfo(5): fields, " - ", kind, source, options.
		mount, super, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(mount), strings.Fields(super)
		if !ok || len(fields) < 5 || len(rest) < 3 {
			return nil, fmt.Errorf("mountinfo has %q", lines.Text())
		}
		if kind := rest[0]; kind == "cgroup" || kind == "cgroup2" {
			h := hierarchy{path: fields[4], kind: kind}
			if kind == "cgroup" {
				options := slices.DeleteFunc(strings.Split(rest[2], ","), func(o string) bool { return o == "rw" || o == "ro" })
				h.data = strings.Join(options, ",")
			}
			out = append(out, h)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no control groups are mounted: `ip netns exec` hides them, `nsenter --net=` does not")
	}
	return out, nil
}

// enterGroup moves this process into the group, made if need be, of each hierarchy.
func enterGroup(group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		dir := h.path + group
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// Nothing can be in a group of the controller cpuset that has no processors.
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(h.path, name))
			if err != nil || h.kind != "cgroup" {
				continue // it is not that controller
			}
			if err := os.WriteFile(filepath.Join(dir, name), value, 0o644); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("enter control group %s: %w", dir, err)
		}
	}
	return nil
}

// mountGroups mounts the hierarchies anew, so that they are seen from within the caller's
// control group namespace.
func mountGroups() error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range all {
		if err := unix.Unmount(h.path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", h.path, err)
		}
		if err := unix.Mount(h.kind, h.path, h.kind, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, h.data); err != nil {
			return fmt.Errorf("mount %s (%s): %w", h.path, h.data, err)
		}
	}
	return nil
}

// removeGroups removes a control group with those in it from all hierarchies. The kernel
// may take a moment to notice that the last process has gone.
func removeGroups(ctx context.Context, group string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, h := range all {
		for {
			err := removeGroup(h.path + group)
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove control group %s: %w", h.path+group, err)
			case <-tick.C:
			}
		}
	}
	return nil
}

// removeGroup removes the deepest first; the files in a group are not there to be removed.
func removeGroup(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(filepath.Join(path, e.Name())); err != nil {
				return err
			}
		}
	}
	return unix.Rmdir(path)
}
