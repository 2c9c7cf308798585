package svid

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
)

const redacted = "REDACTED"

// Token is a bearer token. It cannot be printed, logged or encoded: only Reveal gives
// its text. The text is behind a pointer because package fmt looks through unexported
// fields of structs without calling their methods.
type Token struct{ text *string }

// TokenFromString wraps the text of a token.
func TokenFromString(s string) Token { return Token{text: &s} }

// Reveal returns the text. Its callers are the ones that send or store tokens.
func (t Token) Reveal() string {
	if t.text == nil {
		return ""
	}
	return *t.text
}

// IsZero reports whether the token is empty.
func (t Token) IsZero() bool { return t.Reveal() == "" }

// Hash is the token's SHA-256, by which it may be looked up and compared.
func (t Token) Hash() [sha256.Size]byte { return sha256.Sum256([]byte(t.Reveal())) }

// String is "REDACTED".
func (t Token) String() string { return redacted }

// GoString is "REDACTED".
func (t Token) GoString() string { return redacted }

// Format writes "REDACTED" for every verb.
func (t Token) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText gives "REDACTED".
func (t Token) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue is "REDACTED".
func (t Token) LogValue() slog.Value { return slog.StringValue(redacted) }
