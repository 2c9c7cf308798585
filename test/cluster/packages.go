package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// packages are what Debian has that the cluster needs, by a file of each.
var packages = map[string]string{
	"/usr/bin/containerd": "containerd",
	"/usr/sbin/runc":      "runc",
	"/usr/lib/cni/ptp":    "containernetworking-plugins",
	"/usr/sbin/nft":       "nftables",
	"/usr/bin/ip":         "iproute2",
	"/usr/bin/nsenter":    "util-linux",
	"/usr/bin/mount":      "mount",
}

// missing is the packages, sorted, whose files stat does not find.
func missing(stat func(string) (fs.FileInfo, error)) ([]string, error) {
	names := map[string]bool{}
	for file, name := range packages {
		if _, err := stat(file); errors.Is(err, fs.ErrNotExist) {
			names[name] = true
		} else if err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// aptGet is the arguments of the calls of apt-get that install packages, which ask nothing.
// Another that is at work, as on a machine that has just started, is waited for.
func aptGet(names []string) [][]string {
	wait := []string{"-o", "DPkg::Lock::Timeout=300", "-qq"}
	return [][]string{
		append(slices.Clone(wait), "update"),
		append(append(slices.Clone(wait), "install", "-y", "--no-install-recommends"), names...),
	}
}

// install gets the packages that are missing.
func (u *up) install(ctx context.Context) error {
	names, err := missing(os.Stat)
	if err != nil || len(names) == 0 {
		return err
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("missing: %s (install them, or run as root on Debian)", strings.Join(names, ", "))
	}
	fmt.Fprintf(u.Out, "installing %s\n", strings.Join(names, ", "))
	for _, args := range aptGet(names) {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	if names, err := missing(os.Stat); err != nil || len(names) > 0 {
		return errors.Join(fmt.Errorf("installed, and their files are not where they are looked for: %s", strings.Join(names, ", ")), err)
	}
	return nil
}
