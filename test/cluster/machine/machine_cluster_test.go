//go:build cluster

package machine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"aether.io/aether/test/cluster/supervise"
)

func TestMain(m *testing.M) {
	Main()
	os.Exit(m.Run())
}

// messy is a program as a container runtime is one: it leaves processes without a parent,
// mounts, interfaces, files of its own and control groups.
const messy = `
set -e
mount -t tmpfs messy /run/lock
touch /var/lib/messy /etc/messy
ip link add messy0 type veth peer name messy1
cat /proc/sys/vm/overcommit_memory > /var/lib/tunable
echo 7 > /proc/sys/vm/overcommit_memory
mkdir -p /sys/fs/cgroup/pids/inner
(echo 0 > /sys/fs/cgroup/pids/inner/cgroup.procs; exec sleep 86397) &
(sh -c 'exec sleep 86398' &)
hostname > /var/lib/ready
exec sleep 86399
`

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting until %s", what)
		case <-tick.C:
		}
	}
}

func read(path string) string {
	text, _ := os.ReadFile(path)
	return strings.TrimSpace(string(text))
}

// sleepers are the numbers of the processes that a messy program leaves.
func sleepers() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range all {
		if strings.HasPrefix(read(f), "sleep\x008639") {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			pids = append(pids, pid)
		}
	}
	return pids
}

func start(t *testing.T, m Machine, name string) {
	t.Helper()
	spec := Spec{Name: name, Commands: []supervise.Command{{
		Name: "messy", Args: []string{"sh", "-c", messy},
	}}}
	if err := m.Start(t.Context(), spec, func(int) error { return nil }); err != nil {
		t.Fatalf("%v\n%s", err, read(m.Log("machine")))
	}
	await(t, "the program runs with all it starts: "+read(m.Log("messy"))+read(m.Log("machine")), func() bool {
		return read(m.Host("/var/lib/ready")) == name && len(sleepers()) == 3
	})
}

func TestAMachineLeavesNothingBehind(t *testing.T) {
	m := In(filepath.Join(t.TempDir(), "m"))
	t.Cleanup(func() {
		if err := m.Remove(context.Background()); err != nil {
			t.Error(err)
		}
	})
	mounts, overcommit := read("/proc/self/mounts"), read("/proc/sys/vm/overcommit_memory")

	start(t, m, "first")
	p, err := m.Process()
	if err != nil {
		t.Fatal(err)
	}
	start(t, m, "first")
	if again, err := m.Process(); err != nil || again != p {
		t.Errorf("a machine that runs was started again: %v, %v", again, err)
	}
	if got := read(m.Host("/var/lib/tunable")); got != "1" {
		t.Errorf("the machine's kubelet would find overcommit_memory at %q", got)
	}
	if got := read("/sys/fs/cgroup/pids" + m.group() + "/inner/cgroup.procs"); got == "" {
		t.Error("the program's control group is not below the machine's")
	}
	cmd, err := m.Exec(t.Context(), "sh", "-c", "ls /etc/messy && ip -o link && grep -c messy /proc/self/mounts && hostname")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "messy0") || !strings.HasSuffix(string(out), "\n1\nfirst\n") {
		t.Errorf("in the machine: %v\n%s", err, out)
	}

	// Whoever ends its first process, and however: here as an OOM killer would.
	if err := p.Signal(9); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the kernel has ended all others", func() bool { return len(sleepers()) == 0 })
	if err := os.Remove(m.Host("/var/lib/ready")); err != nil {
		t.Fatal(err)
	}
	start(t, m, "first")
	if err := os.Remove(m.Host("/var/lib/ready")); err != nil {
		t.Fatal(err)
	}
	start(t, m, "second") // another machine: not the one that runs

	if err := m.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := sleepers(); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
	if now := read("/proc/self/mounts"); now != mounts {
		t.Errorf("mounts are\n%s\nwere\n%s", now, mounts)
	}
	if links, err := exec.Command("ip", "-brief", "link").Output(); err != nil || strings.Contains(string(links), "messy") {
		t.Errorf("interfaces are\n%s (%v)", links, err)
	}
	if now := read("/proc/sys/vm/overcommit_memory"); now != overcommit {
		t.Errorf("overcommit_memory is %s, was %s", now, overcommit)
	}
	for _, path := range []string{"/var/lib/messy", "/etc/messy", m.Dir(), "/sys/fs/cgroup/pids" + m.group()} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is left", path)
		}
	}
}

func TestAProgramOfAMachineIsEndedHaltedAndStarted(t *testing.T) {
	m := In(filepath.Join(t.TempDir(), "m"))
	t.Cleanup(func() { _ = m.Remove(context.Background()) })
	start(t, m, "controlled")
	status := func() supervise.Status {
		all, err := m.Programs(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("programs: %v, %v", all, err)
		}
		return all[0]
	}
	if err := m.KillProgram(t.Context(), "messy"); err != nil {
		t.Fatal(err)
	}
	await(t, "it is started again", func() bool { return status().Starts > 1 })
	if err := m.StopProgram(t.Context(), "messy"); err != nil {
		t.Fatal(err)
	}
	if s := status(); s.PID != 0 {
		t.Errorf("after the stop: %+v", s)
	}
	if err := m.StartProgram(t.Context(), "messy"); err != nil {
		t.Fatal(err)
	}
	await(t, "it runs", func() bool { return status().PID != 0 })
	if err := m.StopProgram(t.Context(), "other"); err == nil {
		t.Error("a program that is not there was stopped")
	}
}

func TestAMachineThatCannotBeConnectedDoesNotRun(t *testing.T) {
	m := In(filepath.Join(t.TempDir(), "m"))
	t.Cleanup(func() { _ = m.Remove(context.Background()) })
	err := m.Start(t.Context(), Spec{Name: "lonely"}, func(int) error { return os.ErrPermission })
	if err == nil {
		t.Fatal("it started")
	}
	if p, err := m.Process(); err != nil || p.PID != 0 {
		t.Errorf("it runs: %v, %v", p, err)
	}
	if slices.Contains(strings.Fields(read(m.Log("machine"))), "mount") {
		t.Error("it did something before it was connected")
	}
}
