package check

import (
	"math"
	"regexp/syntax"
	"slices"
	"strings"
)

// Footprint is about how many bytes of memory RE2 takes to keep a pattern ready, rather too
// many than too few; what matching adds is not in it. Of what is no pattern it is that of a
// text.
func Footprint(pattern string) int64 {
	const ready, character = 900, 3
	size := int64(ready + character*len(pattern))
	if re, err := syntax.Parse(latin1(pattern), syntax.Perl); err == nil {
		n := program(re.Simplify())
		if strings.Contains(pattern, "|") { // RE2 finds less that is alike
			n = max(n, 25*int64(len(pattern)))
		}
		size += n
		if folds(re) {
			size += 2_100 // an automaton by which it looks for the beginning
		}
	}
	return size
}

// program is what was measured of the parts of a program, in bytes.
func program(re *syntax.Regexp) int64 {
	var n int64
	for _, sub := range re.Sub {
		n += program(sub)
	}
	switch re.Op {
	case syntax.OpConcat, syntax.OpEmptyMatch:
	case syntax.OpLiteral:
		n += 40 * int64(len(re.Rune))
	case syntax.OpCharClass:
		n += 20
		for i := 0; i < len(re.Rune) && re.Rune[i] <= math.MaxUint8; i += 2 {
			n += 14
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n += 200
	case syntax.OpCapture:
		n += 180
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		n += 80
	case syntax.OpAlternate:
		n += 25 * int64(len(re.Sub))
	default:
		n += 20
	}
	return n
}

// folds reports whether letters of a pattern stand for both cases.
func folds(re *syntax.Regexp) bool {
	return re.Op == syntax.OpLiteral && re.Flags&syntax.FoldCase != 0 || slices.ContainsFunc(re.Sub, folds)
}
