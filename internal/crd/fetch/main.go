// Command fetch copies the standard channel's CustomResourceDefinitions of the Gateway
// API out of its Go module, at the version that go.mod requires, into the directory that
// internal/crd embeds. It needs the module in Go's module cache or the means to get it.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

const module = "sigs.k8s.io/gateway-api"

func main() {
	dir := flag.String("dir", "internal/crd/gateway-api", "directory to fill; YAML files that are no longer wanted are removed")
	flag.Parse()
	if err := run(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "fetch:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	src, version, err := locate()
	if err != nil {
		return err
	}
	wanted, err := filepath.Glob(filepath.Join(src, "config", "crd", "standard", "*.yaml"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, path := range wanted {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		ok, err := check(data, version)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if !ok {
			continue
		}
		name := filepath.Base(path)
		kept[name] = true
		if err := write(filepath.Join(dir, name), data); err != nil {
			return err
		}
	}
	if len(kept) == 0 {
		return fmt.Errorf("no CustomResourceDefinition under %s", src)
	}
	return prune(dir, kept)
}

// locate asks the go command where the module is and which version it has.
func locate() (dir, version string, err error) {
	// Download first: list alone leaves Dir empty when the module is not in the cache.
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	var m struct{ Dir, Version, Error string }
	if jsonErr := json.Unmarshal(out, &m); jsonErr == nil && m.Error != "" {
		err = errors.New(m.Error)
	}
	if err != nil {
		return "", "", fmt.Errorf("locate module %s: %w", module, err)
	}
	if m.Dir == "" {
		return "", "", fmt.Errorf("locate module %s: the go command names no directory", module)
	}
	return m.Dir, m.Version, nil
}

// check reports whether data is a CustomResourceDefinition, and refuses one that does not
// say it is of the standard channel of that version.
func check(data []byte, version string) (bool, error) {
	var head struct {
		Kind     string
		Metadata struct{ Annotations map[string]string }
	}
	// A file of several documents is no CustomResourceDefinition of this module.
	if bytes.Contains(bytes.TrimPrefix(data, []byte("---")), []byte("\n---")) {
		return false, nil
	}
	if err := yaml.Unmarshal(data, &head); err != nil {
		return false, err
	}
	if head.Kind != "CustomResourceDefinition" {
		return false, nil
	}
	for annotation, want := range map[string]string{
		"gateway.networking.k8s.io/bundle-version": version,
		"gateway.networking.k8s.io/channel":        "standard",
	} {
		if got := head.Metadata.Annotations[annotation]; got != want {
			return false, fmt.Errorf("annotation %s is %q, want %q", annotation, got, want)
		}
	}
	return true, nil
}

// write leaves an equal file alone, so that its time does not make builds run again.
func write(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return os.WriteFile(path, data, 0o644)
}

func prune(dir string, kept map[string]bool) error {
	have, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	for _, path := range have {
		if !kept[filepath.Base(path)] {
			if err := os.Remove(path); err != nil {
				return err
			}
		}
	}
	return nil
}
