package view

import "testing"

func TestOneLineIsOneLine(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text":          {"a ü b", "a ü b"},
		"a line of its own":   {"x\nready\n", `x\nready\n`},
		"a terminal's escape": {"\x1b[2J\x1b]0;x\a", `\x1b[2J\x1b]0;x\a`},
		"a carriage return":   {"a\rready", `a\rready`},
		"a line separator":    {"a\u2028b", `a\u2028b`},
		"reversed text":       {"a\u202eb", `a\u202eb`},
		"no UTF-8":            {"a\xffb", `a�b`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := OneLine(c.in); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
