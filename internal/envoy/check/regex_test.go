package check

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"
)

// accepted are patterns of the kind people write, and the odd ones RE2 takes.
func accepted() []string {
	return []string{
		`/`, `/api/v[0-9]+/users/[^/]+`, `/(en|de|fr)/.*`, `(?i)/straße/[äöü]+`, `[a-f0-9]{8}(-[a-f0-9]{4}){3}-[a-f0-9]{12}`,
		`\p{Greek}+`, `\pL{10}`, `\P{Latin}`, `\p{^Greek}`, `[\p{Lu}\d]+`, `\p{Any}`, `\Q\p{Letter}\E`, `\\p{3}`, `(?P<id>\w+)`,
		`(?<id>\w+)`, `[[:word:]]+`, `[[:^alpha:]]`, `(?s).`, `(?U)a+`, `^/x\b.*$`, `\A\z`, `日本語/.*`, `[一-龥]{1,8}`, `[^é]{20}`, `(?i)ſ{9}`,
		`(abc.*){20}`, `(a|b|c|d|e|f)*`, `a{900}`, `[^/]{1,60}`, `[\x{80}-\x{ff}]{5}`, `\x{41}\x7f`, `[é-￿]{9}`,
		`a{1000}`, `[^é]{900}`, strings.Repeat("x", 1024), "/" + strings.Repeat(`x`, 1021) + ".*", strings.Repeat(".", 1024), strings.Repeat(`\w`, 512),
		strings.Repeat("x", 4096), "(" + strings.Repeat("tenant-17|", 408) + "tenant-17)", strings.Repeat("[^/]", 256),
		`.{40}`, `\d{1,100}`, `\W{10}`, `\S+@\S+`, `(?i)[k-s]{30}`, `((((((a))))))*`, `(a*)*`, `(a?){50}`, `[ß-ÿĀ-ž]{12}`,
	}
}

// refused are patterns that Envoy must never see.
func refused() []string {
	return []string{
		``, `(`, `[`, `a**`, `x{3,2}`, `(a{1000}){2}`, `\8`, `\Z`, `(?=a)`, `(a)\1`, `\p{Letter}`, `\p{Cn}`, `\P{LC}`, `[\p{ASCII}]`,
		`\p{greek}`, `\Qa\E\p{Letter}`, `\x{100}`, `[\x{800}-\x{ffff}]`, `\777`, `[\400]`, "\xff", `\C`, `(abc.*){400}`, `.*a.{500}`, `(a?b?c?){1000}(d?e?f?){900}`,
		"(" + strings.Repeat(`.*tenant-17|`, 340) + ")", strings.Repeat("x", 16384), strings.Repeat(`\pL`, 1300),
	}
}

func TestRegexesOfTheKindPeopleWritePass(t *testing.T) {
	for _, pattern := range accepted() {
		if err := Regex(pattern); err != nil {
			t.Error(err)
		}
	}
}

func TestRegexesThatEnvoyRefusesAreRefusedByName(t *testing.T) {
	for _, pattern := range refused() {
		if err := Regex(pattern); err == nil {
			t.Errorf("%q was accepted", pattern)
		} else if len(err.Error()) > 300 {
			t.Errorf("%q: the error has %d characters", pattern, len(err.Error()))
		}
	}
}

func estimate(pattern string) int {
	re, err := syntax.Parse(latin1(pattern), syntax.Perl)
	if err != nil {
		return 0
	}
	return instructions(re.Simplify()) + 4
}

func FuzzRegex(f *testing.F) {
	for _, p := range append(accepted(), refused()...) {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if Regex(pattern) != nil {
			return
		}
		re, err := regexp.Compile(latin1(pattern))
		if err != nil {
			t.Fatalf("accepted %q: %v", pattern, err)
		}
		if n := estimate(pattern); n > maxProgram || n < re.NumSubexp() {
			t.Errorf("accepted %q of estimated size %d", pattern, n)
		}
	})
}
