package image

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// libraryDirs is where the loader of this machine looks, in its order.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib",
}

// Libraries returns the files that a program needs besides itself: its loader and the
// shared libraries, by the paths at which the loader looks for them. A static program
// needs none.
func Libraries(program string) (map[string]string, error) {
	files := map[string]string{}
	for todo := []string{program}; len(todo) > 0; todo = todo[1:] {
		needs, err := needed(todo[0])
		if err != nil {
			return nil, fmt.Errorf("find the libraries of %s: %w", program, err)
		}
		for _, path := range needs {
			if files[path] == "" {
				files[path] = path
				todo = append(todo, path)
			}
		}
	}
	return files, nil
}

// needed lists what a file names: its loader by path, libraries by where they are found.
func needed(file string) ([]string, error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []string
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			name, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			out = append(out, strings.TrimRight(string(name), "\x00"))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, name := range libraries {
		path, err := findLibrary(name)
		if err != nil {
			return nil, err
		}
		out = append(out, path)
	}
	return out, nil
}

func findLibrary(name string) (string, error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s is in none of %s", name, strings.Join(libraryDirs, ", "))
}
