package view

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// OneLine is s as it may be shown on a terminal: what would start a new line, or be taken
// for a command by the terminal, is escaped. Names and errors come from files of others.
func OneLine(s string) string {
	safe := func(r rune) bool { return unicode.IsPrint(r) && r != unicode.ReplacementChar }
	if strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if safe(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// Plural is a number of things, of which one is called one.
func Plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}
