package identity

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/spiffe/go-spiffe/v2/bundle/x509bundle"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"aether.io/aether/internal/svid"
)

// maxFile bounds what is read of a mounted file, in bytes: a ConfigMap's limit.
const maxFile = 1 << 20

// trust is what a proxy verifies the controller with: the mounted roots and those that
// the controller has pushed. A mounted file that cannot be read or parsed leaves what
// was last read of it in force. It implements x509bundle.Source.
type trust struct {
	path    string
	domain  spiffeid.TrustDomain
	changed func() // called after roots have changed, without mu

	mu      sync.Mutex // guards what follows
	mounted svid.Bundle
	pushed  svid.Bundle
	unread  error // why the mounted file could not be read the last time
}

// reload reads the mounted file.
func (t *trust) reload() {
	text, err := readBounded(t.path)
	var b svid.Bundle
	if err == nil {
		b, err = svid.ParseBundle(text)
	}
	t.mu.Lock()
	t.unread = err
	differs := err == nil && !t.mounted.Equal(b)
	if differs {
		t.mounted = b
	}
	t.mu.Unlock()
	if differs {
		t.changed()
	}
}

// push replaces the pushed roots.
func (t *trust) push(b svid.Bundle) {
	t.mu.Lock()
	differs := !t.pushed.Equal(b)
	t.pushed = b
	t.mu.Unlock()
	if differs {
		t.changed()
	}
}

func (t *trust) bundles() (mounted, pushed svid.Bundle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mounted, t.pushed
}

// GetX509BundleForTrustDomain reads the mounted file anew and adds the pushed roots.
func (t *trust) GetX509BundleForTrustDomain(td spiffeid.TrustDomain) (*x509bundle.Bundle, error) {
	if td != t.domain {
		return nil, fmt.Errorf("no roots for trust domain %q", td.Name())
	}
	t.reload()
	mounted, pushed := t.bundles()
	if mounted.IsZero() && pushed.IsZero() {
		return nil, t.unreadable()
	}
	return x509bundle.FromX509Authorities(td, append(mounted.Certificates(), pushed.Certificates()...)), nil
}

func (t *trust) unreadable() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Errorf("read trust bundle: %w", t.unread)
}

var errTooLarge = errors.New("larger than 1 MiB")

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxFile:
		return nil, fmt.Errorf("read %s: %w", path, errTooLarge)
	}
	return b, nil
}
