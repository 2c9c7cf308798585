package sheet_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/routing/sheet"
)

// ledger: rows of a sheet are filed by their first letter, and each letter has a sum.
type ledger struct {
	sheet.Sheet
	rows   sheet.Input[string, int]
	filed  sheet.Group[byte, string, int]
	totals sheet.Output[byte, int]
	row    *sheet.Formula[string, int]
	sum    *sheet.Formula[byte, int]
	ran    []string
}

func newLedger() *ledger {
	l := &ledger{}
	l.row = sheet.NewFormula(&l.Sheet, func(c *sheet.Cell, k string) int {
		l.ran = append(l.ran, "row "+k)
		v, there := l.rows.Get(c, k)
		if there {
			l.filed.Put(c, k[0], k, v/10)
		}
		return v
	})
	l.sum = sheet.NewFormula(&l.Sheet, func(c *sheet.Cell, k byte) int {
		l.ran = append(l.ran, "sum "+string(k))
		total := 0
		for _, v := range l.filed.All(c, k) {
			total += v
		}
		l.totals.Put(c, k, total)
		return total
	})
	l.filed.Want(l.sum)
	return l
}

func (l *ledger) set(k string, v int) { l.rows.Set(k, v) }

func (l *ledger) settle() (ran []string, totals map[string]int, gone []string) {
	l.ran = nil
	l.Settle()
	totals = map[string]int{}
	for _, c := range l.totals.Drain() {
		if c.Gone {
			gone = append(gone, string(c.Key))
		} else {
			totals[string(c.Key)] = c.Value
		}
	}
	return slices.Sorted(slices.Values(l.ran)), totals, gone
}

func TestOnlyWhatAChangeReachesIsComputed(t *testing.T) {
	l := newLedger()
	for _, k := range []string{"a1", "a2", "b1"} {
		l.set(k, 10)
		l.row.Pin(k)
	}
	ran, totals, _ := l.settle()
	if want := []string{"row a1", "row a2", "row b1", "sum a", "sum b"}; !slices.Equal(ran, want) {
		t.Errorf("at first: ran %v, want %v", ran, want)
	}
	if want := map[string]int{"a": 2, "b": 1}; !maps.Equal(totals, want) {
		t.Errorf("at first: totals %v, want %v", totals, want)
	}

	l.set("a1", 30)
	ran, totals, _ = l.settle()
	if diff := cmp.Diff([]any{[]string{"row a1", "sum a"}, map[string]int{"a": 4}}, []any{ran, totals}); diff != "" {
		t.Errorf("after a change (-want +got):\n%s", diff)
	}

	l.set("a1", 31) // files as before
	ran, totals, _ = l.settle()
	if diff := cmp.Diff([]any{[]string{"row a1"}, map[string]int{}}, []any{ran, totals}); diff != "" {
		t.Errorf("after a change that makes no difference (-want +got):\n%s", diff)
	}

	l.rows.Delete("b1")
	l.row.Unpin("b1")
	if _, totals, gone := l.settle(); len(totals) > 0 || !slices.Equal(gone, []string{"b"}) {
		t.Errorf("after the last of b: totals %v, gone %v", totals, gone)
	}
	before := l.Runs()
	l.set("b1", 10) // nobody wants it any more
	l.settle()
	if l.Runs() != before {
		t.Error("a cell that was dropped was computed")
	}
}

func TestAnAbsentValueIsADependency(t *testing.T) {
	l := newLedger()
	l.row.Pin("a1")
	if _, totals, _ := l.settle(); len(totals) > 0 {
		t.Fatalf("totals %v of nothing", totals)
	}
	l.set("a1", 50)
	if _, totals, _ := l.settle(); totals["a"] != 5 {
		t.Errorf("totals %v, want a: 5", totals)
	}
}

func TestAValueThatComesBackIsNoNews(t *testing.T) {
	l := newLedger()
	l.set("a1", 50)
	l.row.Pin("a1")
	l.settle()
	l.rows.Delete("a1")
	l.Settle()
	l.set("a1", 50)
	if _, totals, gone := l.settle(); len(totals) > 0 || len(gone) > 0 {
		t.Errorf("handed out %v, gone %v", totals, gone)
	}
}

func TestReadingUpwardPanics(t *testing.T) {
	var s sheet.Sheet
	var upper *sheet.Formula[int, int]
	lower := sheet.NewFormula(&s, func(c *sheet.Cell, k int) int { return upper.Get(c, k) })
	upper = sheet.NewFormula(&s, func(*sheet.Cell, int) int { return 1 })
	lower.Pin(1)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.Settle()
}
