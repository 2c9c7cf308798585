package cluster

import (
	"errors"
	"io/fs"
	"os/exec"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPackagesAreInstalledByWhatIsMissing(t *testing.T) {
	nothing := func(string) (fs.FileInfo, error) { return nil, fs.ErrNotExist }
	all, err := missing(nothing)
	if err != nil || len(all) != len(packages) || !slices.IsSorted(all) {
		t.Errorf("on an empty machine %v, %v", all, err)
	}
	without := func(file string) (fs.FileInfo, error) {
		if packages[file] == "runc" || packages[file] == "containerd" {
			return nil, fs.ErrNotExist
		}
		return nil, nil
	}
	names, err := missing(without)
	if diff := cmp.Diff([]string{"containerd", "runc"}, names); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	want := [][]string{
		{"-o", "DPkg::Lock::Timeout=300", "-qq", "update"},
		{"-o", "DPkg::Lock::Timeout=300", "-qq", "install", "-y", "--no-install-recommends", "containerd", "runc"},
	}
	if diff := cmp.Diff(want, aptGet(names)); diff != "" {
		t.Error(diff)
	}
	broken := errors.New("no such luck")
	if _, err := missing(func(string) (fs.FileInfo, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("a disk that can't be read gives %v", err)
	}
}

// The real apt-get is asked what it would do, where there is one: a word that it does not know
// would show only on a machine that lacks something.
func TestAptGetUnderstandsTheInstallation(t *testing.T) {
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Log("there is no apt-get here: what it understands is not checked")
		return
	}
	args := append([]string{"--simulate"}, aptGet([]string{"mount"})[1]...) // it is on every Debian, whatever the lists have
	if out, err := exec.CommandContext(t.Context(), "apt-get", args...).CombinedOutput(); err != nil {
		t.Errorf("apt-get %v: %v\n%s", args, err, out)
	}
}
