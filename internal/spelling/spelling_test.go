package spelling_test

import (
	"testing"

	"aether.io/aether/internal/spelling"
)

func TestTheNearestWordIsMeant(t *testing.T) {
	words := []string{"weight", "name", "namespace", "port", "kind", "on"}
	for misspelt, want := range map[string]string{
		"wieght":  "weight",
		"Weight":  "weight",
		"names":   "name",
		"ports":   "port",
		"retry":   "",
		"x":       "",
		"mode":    "",
		"":        "",
		"weightt": "weight",
	} {
		if got, ok := spelling.Nearest(misspelt, words); got != want || ok != (want != "") {
			t.Errorf("%q is taken for %q, want %q", misspelt, got, want)
		}
	}
}
