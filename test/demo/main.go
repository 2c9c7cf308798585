// Command demo shows Aether doing its main job on this machine: manifests in a directory
// become live routing in a real Envoy. It prints what it does, what it saw and how long
// that took, exits with 1 if anything is not as promised, and leaves nothing behind.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"aether.io/aether/internal/test/instance"
)

func main() {
	aetherctl := flag.String("aetherctl", "bin/aetherctl", "path of the command")
	envoy := flag.String("envoy", os.Getenv("AETHER_ENVOY"), "path of Envoy")
	examples := flag.String("examples", "examples/quickstart", "manifests to start from")
	keep := flag.Bool("keep", false, "keep running at the end")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{keep: *keep}
	err := d.run(ctx, *aetherctl, *envoy, *examples)
	d.close()
	if err != nil {
		fmt.Fprintln(os.Stderr, "\ndemo:", err)
		os.Exit(1) //nolint:gocritic // everything has been closed
	}
}

// prepare copies the examples to a directory of its own, with the ports on which the
// backends really listen.
func (d *demo) prepare(examples string) error {
	for _, b := range []struct {
		name string
		port int
	}{{"shop-v1", 18081}, {"shop-v2", 18082}} {
		started, err := instance.StartBackend(b.name, b.port)
		if err != nil {
			return fmt.Errorf("start backend %s: %w", b.name, err)
		}
		d.backends = append(d.backends, started)
		d.ports = append(d.ports, fmt.Sprintf("port: %d", b.port), fmt.Sprintf("port: %d", started.Port))
	}
	var err error
	if d.work, err = os.MkdirTemp("", "aether-demo-"); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(d.work, "manifests"), 0o700); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(examples, "*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no manifests in %s (%w)", examples, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		out := strings.NewReplacer(d.ports...).Replace(string(text))
		if err := os.WriteFile(filepath.Join(d.work, "manifests", filepath.Base(f)), []byte(out), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) close() {
	if d.in != nil {
		if err := d.in.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "demo:", err)
		}
	}
	for _, b := range d.backends {
		b.Close()
	}
	if d.work != "" {
		_ = os.RemoveAll(d.work)
	}
}
