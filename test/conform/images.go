package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"aether.io/aether/test/cluster"
	"aether.io/aether/test/cluster/build"
	"aether.io/aether/test/cluster/image"
)

// What the suite's backends are, by the images' names without their tags: the suite's own,
// and CoreDNS, which answers by UDP.
const (
	echo        = "registry.k8s.io/gateway-api/echo-basic"
	echoPackage = suite + "/echo-basic"
	coreDNS     = "registry.k8s.io/coredns/coredns"
)

var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image:\s*["']?([^\s"']+)`)

// load builds the suite's backends and loads them into the cluster under every name that
// the suite's manifests have for them: nothing can be pulled.
func load(ctx context.Context, c cluster.Cluster, out string) error {
	var dir strings.Builder
	if err := goTool(ctx, &dir, "list", "-m", "-f", "{{.Dir}}", suite); err != nil {
		return err
	}
	images, err := backends(os.DirFS(strings.TrimSpace(dir.String())))
	if err != nil {
		return err
	}
	programs, err := programs(ctx, out)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		img, err := image.Of(name, programs[images[name]])
		if err != nil {
			return err
		}
		archive := filepath.Join(out, "image.tar")
		if err := img.Write(archive); err != nil {
			return err
		}
		if err := errors.Join(c.Load(ctx, archive), os.Remove(archive)); err != nil {
			return err
		}
	}
	return nil
}

// programs builds the backends, or finds them: that of the test cluster's name server will
// do for CoreDNS.
func programs(ctx context.Context, out string) (map[string]string, error) {
	program := filepath.Join(out, "echo-basic")
	if err := goTool(ctx, nil, "build", "-trimpath", "-ldflags=-s -w", "-o", program, echoPackage); err != nil {
		return nil, err
	}
	cache, err := build.Cache()
	if err != nil {
		return nil, err
	}
	dns, err := build.CoreDNS(".").Make(ctx, cache, os.Stderr)
	return map[string]string{echo: program, coreDNS: dns}, err
}

// backends is the images that the suite's manifests name, and which backend each is: those
// that every run applies, and those of the tests. Other images are of tests of what is not
// claimed; in what every run applies there may be none.
func backends(manifests fs.FS) (map[string]string, error) {
	images := map[string]string{}
	for _, folder := range []string{"base", "tests"} {
		files, err := fs.Glob(manifests, folder+"/*.yaml")
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := fs.ReadFile(manifests, file)
			if err != nil {
				return nil, err
			}
			for _, m := range imageLine.FindAllSubmatch(text, -1) {
				full := string(m[1])
				switch name, _, _ := strings.Cut(full, ":"); {
				case name == echo, name == coreDNS:
					images[full] = name
				case folder == "base":
					return nil, fmt.Errorf("%s needs image %s, of which nothing is known", file, full)
				}
			}
		}
	}
	if len(images) == 0 {
		return nil, fmt.Errorf("the suite's manifests have no image %s", echo)
	}
	return images, nil
}

// goTool runs the go command in the suite's module, for programs that need no libraries.
func goTool(ctx context.Context, stdout *strings.Builder, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	if stdout != nil {
		cmd.Stdout = stdout
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go %s in %s: %w", strings.Join(args, " "), module, err)
	}
	return nil
}
