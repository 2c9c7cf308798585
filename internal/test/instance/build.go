package instance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// WithPrograms builds all commands into a folder, has run use them, and removes the folder. It is
// the body of a TestMain whose tests need an Envoy, the value of AETHER_ENVOY: it returns what
// run does, or says what is missing on standard error and returns 1.
func WithPrograms(envoy string, run func(programs string) int) int {
	code, err := withPrograms(envoy, run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func withPrograms(envoy string, run func(programs string) int) (int, error) {
	if envoy == "" {
		return 0, errors.New("AETHER_ENVOY does not name an Envoy: run make component")
	}
	dir, err := os.MkdirTemp("", "aether-test-bin-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	out, err := exec.Command("go", "build", "-o", dir, "aether.io/aether/cmd/...").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build the commands: %w\n%s", err, out)
	}
	return run(dir), nil
}
