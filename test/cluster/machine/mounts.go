package machine

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// own are the folders that a machine has for itself; /run is empty when it starts, as
// after any start of a computer.
var own = []string{"/run", "/var/lib", "/var/log"}

// over are the folders to which a machine adds files of its own.
var over = []string{"/etc", "/opt"}

// tunables are the kernel's settings that a kubelet insists on and that are this
// computer's, not the machine's: it reads and writes files instead.
var tunables = map[string]string{
	"kernel/keys/root_maxbytes": "25000000",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
}

// prepare makes the folders.
func (m Machine) prepare() error {
	if err := os.RemoveAll(m.Host("/run")); err != nil {
		return err
	}
	dirs := []string{m.path("logs"), m.Host("/run/lock"), m.Host("/var/log/pods"), m.Host("/var/log/containers")}
	for _, d := range own {
		dirs = append(dirs, m.Host(d))
	}
	for _, d := range over {
		dirs = append(dirs, m.Overlay(d), m.path("work"+d))
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	for name, value := range tunables {
		file := m.path("tunables/" + name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// mount lays the machine's files over the computer's, in the namespace of the caller.
func (m Machine) mount() error {
	type step struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}
	steps := []step{
		// Nothing that is mounted here is ever seen outside; within, pods may share mounts.
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE, ""},
		{"", "/", "", unix.MS_REC | unix.MS_SHARED, ""},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
	}
	for _, d := range over {
		data := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", d, m.Overlay(d), m.path("work"+d))
		steps = append(steps, step{"overlay", d, "overlay", 0, data})
	}
	for name := range tunables {
		steps = append(steps, step{m.path("tunables/" + name), "/proc/sys/" + name, "", unix.MS_BIND, ""})
	}
	for _, d := range own {
		steps = append(steps, step{m.Host(d), d, "", unix.MS_BIND, ""},
			// What is mounted there is not to appear at the folder's other path as well.
			step{"", d, "", unix.MS_PRIVATE, ""}, step{"", d, "", unix.MS_SHARED, ""})
	}
	for _, s := range steps {
		if err := unix.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("mount %s at %s: %w", s.source, s.target, err)
		}
	}
	return nil
}
