package aether_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A test that sleeps is slow or flaky. In a bubble of testing/synctest time is free, so
// there a sleep is how to let it pass.
func TestNoTestSleepsInRealTime(t *testing.T) {
	sleep := []byte("time." + "Sleep(")
	testFiles(t, func(path string, data []byte) {
		if bytes.Contains(data, sleep) && !bytes.Contains(data, []byte(`"testing/synctest"`)) {
			t.Errorf("%s sleeps: wait for the thing itself, with a deadline that dumps state", path)
		}
	})
}

// The Makefile picks the tests that need pods by their names, and their packages by the names of
// files: one that has only one of the two would never run.
func TestTestsThatNeedPodsAreFound(t *testing.T) {
	name := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t `)
	found := 0
	testFiles(t, func(path string, data []byte) {
		inPods := strings.HasSuffix(path, "_pods_test.go")
		for _, match := range name.FindAllSubmatch(data, -1) {
			if named := strings.HasPrefix(string(match[1]), "TestPods"); named != inPods {
				t.Errorf("%s: %s: tests of files *_pods_test.go are named TestPods…, and no others are", path, match[1])
			} else if named {
				found++
			}
		}
	})
	if found == 0 {
		t.Error("no test needs pods: their names are looked for in the wrong way")
	}
}

// What is large is a program that somebody built, and is in every clone from then on.
func TestNothingLargeIsCommitted(t *testing.T) {
	const most = 512 << 10 // bytes
	if _, err := os.Stat(".git"); err != nil {
		t.Skip("this tree is not a clone: nothing is committed in it")
	}
	list, err := exec.CommandContext(t.Context(), "git", "-c", "safe.directory=*", "ls-tree", "-r", "-l", "-z", "HEAD").Output()
	if err != nil {
		t.Fatalf("list what is committed: %v", err)
	}
	for line := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") { // <mode> blob <id> <size> TAB <path>
		about, path, _ := strings.Cut(line, "\t")
		fields := strings.Fields(about)
		if size, err := strconv.Atoi(fields[len(fields)-1]); err != nil || size > most {
			t.Errorf("%s is too large to be committed, or has no size: %q", path, about)
		}
	}
}

// testFiles calls f with every file of tests and what is in it.
func testFiles(t *testing.T, f func(path string, data []byte)) {
	t.Helper()
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != ".":
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err == nil {
			f(path, data)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
