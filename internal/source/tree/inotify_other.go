//go:build !linux

package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// notifier exists on Linux only, like the Envoy that standalone mode runs.
type notifier struct{ wake chan struct{} }

func newNotifier(func() time.Time) (*notifier, error) {
	return nil, fmt.Errorf("watch a directory: %w on this system", errors.ErrUnsupported)
}

func (*notifier) take() (events []event, first time.Time, overflow bool) { return nil, first, false }

func (*notifier) add(string) (int, error) { return 0, errors.ErrUnsupported }
func (*notifier) remove(int)              {}
func (*notifier) close()                  {}
func (*notifier) poke()                   {}

func links(fs.FileInfo) uint64 { return 1 }
