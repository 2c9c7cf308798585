package run_test

import (
	"errors"
	"testing"

	"aether.io/aether/internal/run"
)

func TestAFaultBecomesAnotherWhenItSaysSomethingElse(t *testing.T) {
	var f run.Fault
	for i, step := range []struct {
		err  error
		news bool
	}{
		{nil, false},
		{errors.New("away"), true},
		{errors.New("away"), false},
		{errors.New("refused"), true},
		{nil, true},
		{nil, false},
		{errors.New("refused"), true},
	} {
		if news := f.Becomes(step.err); news != step.news {
			t.Errorf("step %d, %v: news %t, want %t", i, step.err, news, step.news)
		}
	}
}
