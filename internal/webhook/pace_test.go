package webhook

import (
	"errors"
	"testing"
	"time"
)

// What is taken away is put back at once, and later each time it is taken away again; another
// bundle never waits, and who left it alone for long begins anew.
func TestThePaceOfWrites(t *testing.T) {
	one, two := []byte("one"), []byte("two")
	now := time.Now()
	var p pace
	write := func(bundle []byte, err error) (waited time.Duration) {
		waited = max(p.wait(bundle, now), 0)
		now = now.Add(waited)
		p.wrote(bundle, now, err)
		return waited
	}
	is := func(why string, got, want time.Duration) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %s, want %s", why, got, want)
		}
	}
	is("the first", write(one, nil), 0)
	is("taken away once", write(one, nil), 0)
	is("twice", write(one, nil), firstRestore)
	is("again", write(one, nil), 2*firstRestore)
	is("another bundle", write(two, nil), 0)
	for range 20 {
		write(two, nil)
	}
	is("without end", write(two, nil), lastRestore)
	now = now.Add(3 * lastRestore)
	is("after a long time", write(two, nil), 0)
	is("and then", write(two, nil), 0)
	failed := errors.New("forbidden")
	now = now.Add(3 * lastRestore)
	is("one that fails", write(two, failed), 0)
	is("is tried again", write(two, failed), firstPause)
	is("and again", write(two, failed), 2*firstPause)
	for range 20 {
		write(two, failed)
	}
	is("without end", write(two, failed), lastPause)
	is("until it is written", write(two, nil), lastPause)
	is("after which", write(two, nil), 0)
}
