package check

import (
	"fmt"
	"math"
	"regexp/syntax"
)

const (
	// maxProgram bounds a regular expression's program, by our estimate, which is never
	// below RE2's own count. It is about what RE2 has memory for to match with its fast
	// automaton, and as many as the longest values of matches need, written plainly.
	maxProgram = 20_000

	// maxWork bounds the instructions that matching one value may take when the fast
	// automaton has to give up, as it must for some patterns: then each character may meet
	// the whole program. It was a third of a second where it was measured, in which a
	// thread of Envoy's does nothing else.
	maxWork = 100_000_000

	// longestValue is that of a path or a header: all headers of a request together.
	longestValue = 60 << 10

	// EnvoyMaxRegexSize is what the bootstrap has Envoy refuse. Its default of 100 is
	// less than many honest patterns need.
	EnvoyMaxRegexSize = 2 * maxProgram
)

// checkProgram wants a program that Envoy can have, of re simplified.
func checkProgram(re *syntax.Regexp) error {
	size := instructions(re) + 4
	if size > maxProgram {
		return fmt.Errorf("its program is too large (%d, at most %d)", size, maxProgram)
	}
	if most := maxWork / longestMatch(re); size > most {
		return fmt.Errorf("its program is too large (%d, at most %d for values as long as it matches)", size, most)
	}
	return nil
}

// longestMatch is how many characters of a value are looked at, 1 at least.
func longestMatch(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat: // simplified, a bounded repetition is none
		n = longestValue
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n = 1
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longestMatch(sub))
		}
	default:
		for _, sub := range re.Sub {
			n += longestMatch(sub)
		}
	}
	return min(max(n, 1), longestValue)
}

// instructions is an upper bound of the instructions RE2 compiles re to.
func instructions(re *syntax.Regexp) int {
	n := 0
	for _, sub := range re.Sub {
		n += instructions(sub)
	}
	switch re.Op {
	case syntax.OpLiteral:
		n += 2 * len(re.Rune)
		if re.Flags&syntax.FoldCase == 0 {
			n -= len(re.Rune)
		}
	case syntax.OpCharClass:
		n++
		for i := 0; i < len(re.Rune) && re.Rune[i] <= math.MaxUint8; i += 2 {
			n += 2
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		n += 4
	case syntax.OpCapture, syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		n += 2
	case syntax.OpAlternate:
		n += len(re.Sub)
	default:
		n++
	}
	return n
}
