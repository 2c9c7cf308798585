//go:build cluster

package network_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"aether.io/aether/test/cluster/machine"
	"aether.io/aether/test/cluster/network"
	"aether.io/aether/test/cluster/supervise"
)

func TestMain(m *testing.M) {
	machine.Main()
	os.Exit(m.Run())
}

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// Not while a cluster is up: there is one network.
func TestNodesReachEachOtherAndTheComputerAndNothingIsLeft(t *testing.T) {
	state := func() string {
		return command(t, "ip", "-brief", "link") + command(t, "ip", "route") + command(t, "sysctl", "net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding")
	}
	before, owner := state(), t.TempDir()
	if err := network.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = network.Remove(context.Background(), owner) })
	if err := network.Create(t.Context(), "/another"); !errors.Is(err, network.ErrInUse) {
		t.Errorf("another took the network: %v", err)
	}
	var machines []machine.Machine
	for n := network.Node(1); n <= 2; n++ {
		m := machine.In(filepath.Join(owner, n.Name()))
		t.Cleanup(func() { _ = m.Remove(context.Background()) })
		spec := machine.Spec{Name: n.Name(), Commands: []supervise.Command{{Name: "idle", Args: []string{"sleep", "300"}}}}
		attach := func(pid int) error { return n.Attach(t.Context(), pid) }
		if err := m.Start(t.Context(), spec, attach); err != nil {
			t.Fatal(err)
		}
		// Again, as after a kill.
		if err := errors.Join(m.Stop(t.Context()), m.Start(t.Context(), spec, attach)); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, m)
	}
	for _, to := range []string{network.Host.String(), network.Node(2).Address().String()} {
		cmd, err := machines[0].Exec(t.Context(), "bash", "-c", "exec 3<>/dev/tcp/"+to+"/9")
		if err != nil {
			t.Fatal(err)
		}
		if out, _ := cmd.CombinedOutput(); !strings.Contains(string(out), "Connection refused") {
			t.Errorf("from the first node to %s, where nobody listens: %s", to, out)
		}
	}
	if got := command(t, "ip", "route", "get", network.Node(2).Pods().Addr().Next().String()); !strings.Contains(got, "via "+network.Node(2).Address().String()) {
		t.Errorf("pods of the second node are reached by: %s", got)
	}
	for _, m := range machines {
		if err := m.Remove(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := network.Remove(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	if now := state(); now != before {
		t.Errorf("left:\n%s\nwas:\n%s", now, before)
	}
}
