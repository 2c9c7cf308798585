package atomicfile_test

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"aether.io/aether/internal/atomicfile"
)

func TestReadersNeverSeeAPart(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for range 20 {
				if err := atomicfile.Write(path, bytes.Repeat([]byte{byte('a' + i)}, 1<<16), 0o640); err != nil {
					t.Error(err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	for reading := true; reading; { // until the writers have ended
		select {
		case <-done:
			reading = false
		default:
		}
		got, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil || len(got) != 1<<16 || bytes.Count(got, got[:1]) != len(got) {
			t.Fatalf("read %d bytes that no writer wrote, %v", len(got), err)
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAFailedWriteLeavesTheOld(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "taken")
	if err := os.MkdirAll(filepath.Join(path, "by-a-directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.Write(path, []byte("x"), 0o600); err == nil {
		t.Fatal("a directory was replaced by a file")
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}
