package audit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestALogIsReadFromAPlaceToItsLastWholeLine(t *testing.T) {
	const (
		first  = `{"verb":"create","user":{"username":"system:serviceaccount:a:b"},"userAgent":"one/v1","objectRef":{"resource":"secrets","namespace":"a","name":"s"},"responseStatus":{"code":201}}` + "\n"
		second = `{"verb":"update","user":{"username":"admin"},"userAgent":"two","objectRef":{"resource":"gateways","subresource":"status","apiGroup":"g","namespace":"b","name":"w"},"responseStatus":{"code":409}}` + "\n"
	)
	log := filepath.Join(t.TempDir(), "audit.log")
	if err := os.WriteFile(log, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	at, err := Size(log)
	if err != nil || at != int64(len(first)) {
		t.Fatalf("it has %d bytes (%v), want %d", at, err, len(first))
	}
	if err := os.WriteFile(log, []byte(first+second+second[:20]), 0o600); err != nil {
		t.Fatal(err)
	}
	type row struct {
		Said, User, Program string
		Done                bool
	}
	rows := func(at int64) (out []row) {
		t.Helper()
		list, err := Since(log, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			out = append(out, row{w.String(), w.User.Username, w.Program(), w.Done()})
		}
		return out
	}
	want := []row{
		{"create secrets/ a/s", "system:serviceaccount:a:b", "one", true},
		{"update gateways/status b/w", "admin", "two", false},
	}
	if diff := cmp.Diff(want, rows(0)); diff != "" {
		t.Errorf("all of it (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], rows(at)); diff != "" {
		t.Errorf("what came later (-want +got):\n%s", diff)
	}
	if _, err := Since(log, 1<<20); err == nil {
		t.Error("a log that was begun anew is read as if it were the same")
	}
}
