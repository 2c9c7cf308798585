package aether_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A test that sleeps is slow or flaky. In a bubble of testing/synctest time is free, so
// there a sleep is how to let it pass.
func TestNoTestSleepsInRealTime(t *testing.T) {
	sleep := []byte("time." + "Sleep(")
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
		if err != nil {
			return err
		}
		if bytes.Contains(data, sleep) && !bytes.Contains(data, []byte(`"testing/synctest"`)) {
			t.Errorf("%s sleeps: wait for the thing itself, with a deadline that dumps state", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
