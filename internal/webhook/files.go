package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The files of a certificate, as a Secret of type kubernetes.io/tls is mounted.
const (
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
)

// look is how often files are looked at.
const look = 2 * time.Second

// Files is a certificate in a directory that somebody else writes, as the kubelet does with
// that of a Secret. A new one is served as soon as it is seen to be whole; one that is not
// replaces none that is.
type Files struct {
	dir string

	mu        sync.Mutex // guards what follows
	read      bool
	cert      *tls.Certificate // unless err
	err       error            // what is wrong with what is there, nil if nothing
	text, key []byte           // what was read last
}

// NewFiles takes the directory, which need not be there yet.
func NewFiles(dir string) (*Files, error) {
	if dir == "" {
		return nil, errors.New("certificate files need a directory")
	}
	return &Files{dir: dir}, nil
}

// Run looks at the files until ctx is done.
func (f *Files) Run(ctx context.Context) error {
	tick := time.NewTicker(look)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		f.refresh()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Certificate implements Certificates. While what is there is no certificate it is an error, and
// the Server goes on with the last one.
func (f *Files) Certificate() (*tls.Certificate, error) {
	f.mu.Lock()
	read := f.read
	f.mu.Unlock()
	if !read { // asked before Run has looked
		f.refresh()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return f.cert, nil
}

// refresh reads the files. While they are replaced they may not be a pair: they are looked at
// again.
func (f *Files) refresh() {
	text, err := os.ReadFile(filepath.Join(f.dir, CertFile))
	key, err2 := os.ReadFile(filepath.Join(f.dir, KeyFile))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read = true
	if err := errors.Join(err, err2); err != nil {
		f.text, f.key, f.err = nil, nil, err
		return
	}
	if bytes.Equal(text, f.text) && bytes.Equal(key, f.key) {
		return
	}
	f.text, f.key = text, key
	cert, err := tls.X509KeyPair(text, key)
	if err != nil {
		f.err = fmt.Errorf("%s and %s of %s: %w", CertFile, KeyFile, f.dir, err)
		return
	}
	f.cert, f.err = &cert, nil
}
