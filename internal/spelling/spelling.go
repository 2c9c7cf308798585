// Package spelling finds what somebody meant who wrote something else. It knows words, not
// what they stand for.
package spelling

import "strings"

// Nearest is the word of a list that a misspelt one most likely stands for, the first of
// several; false if none is near: a quarter of its letters may differ, and one more.
func Nearest(misspelt string, words []string) (nearest string, ok bool) {
	best := 0
	for _, w := range words {
		d := Distance(misspelt, w)
		if d > 1+len(w)/4 || d >= len(w) {
			continue
		}
		if !ok || d < best {
			nearest, best, ok = w, d, true
		}
	}
	return nearest, ok
}

// Distance is the number of bytes to insert, delete or replace between a and b, letter
// case apart. Long input is compared by its first 128 bytes.
func Distance(a, b string) int {
	const limit = 128
	a, b = strings.ToLower(a[:min(len(a), limit)]), strings.ToLower(b[:min(len(b), limit)])
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
