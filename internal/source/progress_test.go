package source

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

func TestALoadThatTakesLongSaysHowFarItIs(t *testing.T) {
	began := time.Unix(1000, 0)
	var told []string
	p := &progress{of: 6, every: time.Second, due: began.Add(time.Second), tell: func(done, of int) { told = append(told, fmt.Sprintf("%d of %d", done, of)) }}
	for _, after := range []time.Duration{0, 900, 1100, 1200, 2500, 9000} { // ms
		p.step(began.Add(after * time.Millisecond))
	}
	if want := []string{"3 of 6", "5 of 6"}; !slices.Equal(told, want) { // the last says itself
		t.Errorf("told %q, want %q", told, want)
	}
}
