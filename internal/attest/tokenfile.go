// Package attest answers who a token stands for. Here the tokens are random texts in a
// file, for an instance that runs without Kubernetes. It grants nothing: whether an
// identity may have something is for others to decide.
package attest

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/spiffeid"
	"aether.io/aether/internal/svid"
)

// Errors that callers and tests tell apart.
var (
	// ErrUnknownToken says that a token stands for nobody. It is svid.ErrUnauthenticated.
	ErrUnknownToken = fmt.Errorf("token unknown: %w", svid.ErrUnauthenticated)
	// ErrExposed says that others than its owner may read or write the token file. Until
	// that is mended its tokens prove nothing.
	ErrExposed = errors.New("token file may be read by others")
	// ErrMalformed says that the token file is not as WriteTokenFile writes it.
	ErrMalformed = errors.New("malformed token file")
)

const (
	tokenBytes = 32      // of randomness in a token
	minToken   = 32      // bytes of text that a token must have at least
	maxFile    = 1 << 20 // bytes
)

// Identity is who a token stands for.
type Identity = svid.Workload

// Entry is one line of a token file.
type Entry struct {
	Token    svid.Token
	Identity Identity
}

// NewToken returns a new token of 256 random bits.
func NewToken() svid.Token {
	var b [tokenBytes]byte
	_, _ = rand.Read(b[:]) // does not fail
	return svid.TokenFromString(base64.RawURLEncoding.EncodeToString(b[:]))
}

// file is the token file: JSON, mode 0600.
type file struct {
	Tokens []line `json:"tokens"`
}

type line struct {
	Token          string `json:"token"`
	Namespace      string `json:"namespace"`
	ServiceAccount string `json:"serviceAccount"`
	Pod            string `json:"pod"`
	UID            string `json:"uid"`
	Node           string `json:"node"`
}

// WriteTokenFile replaces the token file as one, mode 0600.
func WriteTokenFile(path string, entries []Entry) error {
	out := file{Tokens: make([]line, len(entries))}
	for i, e := range entries {
		out.Tokens[i] = line{
			Token: e.Token.Reveal(), Namespace: e.Identity.Namespace, ServiceAccount: e.Identity.ServiceAccount,
			Pod: e.Identity.Pod.Name, UID: e.Identity.Pod.UID, Node: e.Identity.Pod.Node,
		}
	}
	if _, err := out.identities(); err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("write token file: %w", err)
	}
	return atomicfile.Write(path, append(text, '\n'), 0o600)
}

// identities checks every line and indexes them by the token's hash.
func (f file) identities() (map[[sha256.Size]byte]Identity, error) {
	byHash := make(map[[sha256.Size]byte]Identity, len(f.Tokens))
	for i, l := range f.Tokens { // errors name the line: never the token
		id := Identity{Namespace: l.Namespace, ServiceAccount: l.ServiceAccount, Pod: spiffeid.Pod{Name: l.Pod, UID: l.UID, Node: l.Node}}
		if err := spiffeid.CheckAccount(id.Namespace, id.ServiceAccount); err != nil {
			return nil, fmt.Errorf("%w: token %d: %w", ErrMalformed, i, err)
		}
		if err := id.Pod.Validate(); err != nil {
			return nil, fmt.Errorf("%w: token %d: %w", ErrMalformed, i, err)
		}
		if len(l.Token) < minToken {
			return nil, fmt.Errorf("%w: token %d is shorter than %d bytes", ErrMalformed, i, minToken)
		}
		hash := svid.TokenFromString(l.Token).Hash()
		if _, twice := byHash[hash]; twice {
			return nil, fmt.Errorf("%w: token %d stands for two", ErrMalformed, i)
		}
		byHash[hash] = id
	}
	return byHash, nil
}

// TokenFile attests by the tokens of a file, which it reads again whenever it has
// changed. A file that cannot be read, or may not be trusted, attests nobody.
type TokenFile struct {
	path string

	mu     sync.Mutex // guards what follows; held while the file is read
	info   os.FileInfo
	byHash map[[sha256.Size]byte]Identity
}

// NewTokenFile returns an attester by the file at path, which need not exist yet.
func NewTokenFile(path string) *TokenFile { return &TokenFile{path: path} }

// Attest returns who the token stands for, ErrUnknownToken if nobody. Other errors say
// that it cannot be known now. Tokens are looked up by their SHA-256, so the time it takes says
// nothing of how much of a token was right.
func (f *TokenFile) Attest(ctx context.Context, token svid.Token) (Identity, error) {
	if err := ctx.Err(); err != nil {
		return Identity{}, err
	}
	byHash, err := f.current()
	if err != nil {
		return Identity{}, fmt.Errorf("attest by token file: %w", err)
	}
	id, ok := byHash[token.Hash()]
	if !ok {
		return Identity{}, ErrUnknownToken
	}
	return id, nil
}

// Recognizes reports whether the token stands for somebody, as the file is now.
func (f *TokenFile) Recognizes(token svid.Token) bool {
	byHash, err := f.current()
	_, ok := byHash[token.Hash()]
	return err == nil && ok
}

// current returns the content of the file as it is now.
func (f *TokenFile) current() (map[[sha256.Size]byte]Identity, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	in, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat() // of what was opened: its mode cannot be another's
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxFile:
		return nil, fmt.Errorf("%w: no file of at most %d bytes", ErrMalformed, maxFile)
	case info.Mode().Perm()&0o077 != 0:
		return nil, fmt.Errorf("%w: mode %#o", ErrExposed, info.Mode().Perm())
	case f.byHash != nil && same(info, f.info):
		return f.byHash, nil
	}
	f.byHash = nil
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return nil, err
	}
	byHash, err := decode(text)
	if err != nil {
		return nil, err
	}
	f.info, f.byHash = info, byHash
	return byHash, nil
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// decode keeps the decoder's own words from its errors: they quote what they read.
func decode(text []byte) (map[[sha256.Size]byte]Identity, error) {
	var f file
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: no JSON of tokens by byte %d", ErrMalformed, dec.InputOffset())
	}
	if dec.More() {
		return nil, fmt.Errorf("%w: more than one document", ErrMalformed)
	}
	return f.identities()
}
