package hcm

import (
	"regexp"
	"testing"
)

func TestEveryTextIsOtherThanAWordButTheWord(t *testing.T) {
	other := regexp.MustCompile("^(?:" + otherThan("ab") + ")$")
	for text, want := range map[string]bool{
		"": true, "a": true, "b": true, "A": true, "abc": true, "abab": true, "ac": true, "bb": true, "xab": true, "a b": true, "ab/1": true,
		"ab": false, "AB": false, "aB": false,
	} {
		if other.MatchString(text) != want {
			t.Errorf("%q: got %v", text, !want)
		}
	}
}
