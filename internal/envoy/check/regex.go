package check

import (
	"errors"
	"fmt"
	"math"
	"regexp/syntax"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Regex tells whether Envoy's RE2 will take the pattern. Envoy has RE2 match bytes
// (Latin-1): so the pattern is read as the characters that its bytes are, and Go's
// parser, which is a port of RE2's, then sees what RE2 sees.
func Regex(pattern string) error {
	if pattern == "" {
		return errors.New("regex is empty")
	}
	if !utf8.ValidString(pattern) {
		return fmt.Errorf("regex %q: is not UTF-8", pattern)
	}
	re, err := syntax.Parse(latin1(pattern), syntax.Perl)
	if err != nil {
		return fmt.Errorf("regex %q: %w", pattern, err)
	}
	if escape, ok := unknownEscape(pattern); ok {
		return fmt.Errorf("regex %q: RE2 has no %s", pattern, escape)
	}
	if err := checkProgram(re.Simplify()); err != nil {
		return fmt.Errorf("regex of %d characters: %w", len(pattern), err)
	}
	return nil
}

func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// unknownEscape returns the first escape that Go knows and RE2 does not: names of Unicode
// classes, and characters that are no byte.
func unknownEscape(pattern string) (string, bool) {
	for i := 0; i+1 < len(pattern); i++ {
		if pattern[i] != '\\' {
			continue
		}
		i++ // now at the escaped character
		switch pattern[i] {
		case 'Q':
			end := strings.Index(pattern[i:], `\E`)
			if end < 0 {
				return "", false
			}
			i += end + 1
		case 'p', 'P':
			name, width := className(pattern[i+1:])
			if !knownClass(name) {
				return pattern[i-1 : i+1+width], true
			}
			i += width
		case '4', '5', '6', '7': // in octal, \377 is the last byte
			if len(pattern) >= i+3 && isOctal(pattern[i+1]) && isOctal(pattern[i+2]) {
				return pattern[i-1 : i+3], true
			}
		case 'x':
			if name, width := className(pattern[i+1:]); width > 2 {
				if n, err := strconv.ParseUint(name, 16, 32); err != nil || n > math.MaxUint8 {
					return pattern[i-1 : i+1+width], true
				}
			}
		}
	}
	return "", false
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// className reads what follows \p: one letter or a name in braces.
func className(s string) (name string, width int) {
	if strings.HasPrefix(s, "{") {
		if end := strings.IndexByte(s, '}'); end > 0 {
			return strings.TrimPrefix(s[1:end], "^"), end + 1
		}
	}
	_, width = utf8.DecodeRuneInString(s)
	return s[:width], width
}

func knownClass(name string) bool {
	switch name {
	case "Any":
		return true
	case "Cn", "LC":
		return false
	}
	return unicode.Categories[name] != nil || unicode.Scripts[name] != nil
}
