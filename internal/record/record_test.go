package record_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/record"
	"aether.io/aether/internal/routing/front"
	"aether.io/aether/internal/routing/key"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web    = key.Name{Namespace: "shop", Name: "web"}
	other  = key.Name{Namespace: "shop", Name: "other"}
	change = object.Change{Key: web.Object(object.Gateway)}
)

const (
	strict = `{"clients":{"tls":{"minVersion":"1.3"}}}`
	single = `{"routeScopes":"Single"}`
)

// faults is what a record told of its file.
type faults struct {
	mu  sync.Mutex
	all []error
}

func (f *faults) add(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, err)
}

func (f *faults) list() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// process is a record that a process keeps until stop.
func process(t *testing.T, path string, told *faults) (r *record.Record, stop func()) {
	t.Helper()
	r, err := record.New(record.Config{Path: path, OnFault: told.add})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Recall(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- r.Run(ctx) }()
	return r, func() {
		t.Helper()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

func served(gw key.Name, parameters string) map[key.Name]*front.Front {
	return map[key.Name]*front.Front{gw: {Gateway: gw, Class: "coxswain", Parameters: parameters}}
}

// onRecord reads what is put before changes: by Gateway its parameters, or "-".
func onRecord(t *testing.T, r *record.Record) map[string]string {
	t.Helper()
	list := r.Before([]object.Change{change})
	if last := list[len(list)-1]; last.Key != change.Key {
		t.Errorf("the last change is %v, want that of the source", last)
	}
	out := map[string]string{}
	for _, c := range list[:len(list)-1] {
		if c.Key.Kind != front.Kept || !c.Implied {
			t.Errorf("change %+v", c)
		}
		out[c.Key.Name] = "-"
		if o, there := c.Object.(*configv1.GatewayParameters); there {
			out[c.Key.Name] = front.ReadKept(o, "coxswain")
		}
	}
	return out
}

func want(t *testing.T, when string, got map[string]string, expected map[string]string) {
	t.Helper()
	if d := cmp.Diff(expected, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", when, d)
	}
}

func TestWhatAGatewayWasServedByOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "served.json")
		var told faults
		r, stop := process(t, path, &told)
		want(t, "at first", onRecord(t, r), map[string]string{})
		r.Update(nil, served(web, strict), true)
		r.Update(nil, served(other, single), true)
		if got := r.Before(nil); got != nil {
			t.Errorf("without changes there are %v", got)
		}
		want(t, "served", onRecord(t, r), map[string]string{"web": strict, "other": single})
		want(t, "handed out", onRecord(t, r), map[string]string{})
		r.Update(nil, map[key.Name]*front.Front{web: {Gateway: web, Class: "coxswain", Keep: true}}, true)
		r.Update(nil, served(other, single), true)
		want(t, "nothing new", onRecord(t, r), map[string]string{})
		synctest.Wait()
		stop()

		r, stop = process(t, path, &told)
		want(t, "of the process before", onRecord(t, r), map[string]string{"web": strict, "other": single})
		r.Update(nil, served(web, single), false)
		want(t, "changed", onRecord(t, r), map[string]string{"web": single})
		r.Update(nil, nil, true) // the list is complete, and other is not in it
		want(t, "complete", onRecord(t, r), map[string]string{"other": "-"})
		r.Update(nil, map[key.Name]*front.Front{web: nil}, true)
		want(t, "gone", onRecord(t, r), map[string]string{"web": "-"})
		synctest.Wait()
		stop()

		r, stop = process(t, path, &told)
		want(t, "after that", onRecord(t, r), map[string]string{})
		stop()
		for _, err := range told.list() {
			if err != nil {
				t.Error(err)
			}
		}
	})
}

func TestWhatCannotBeWrittenIsToldAndWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		var told faults
		r, stop := process(t, filepath.Join(dir, "served.json"), &told)
		r.Update(nil, served(web, strict), true)
		synctest.Wait()
		if list := told.list(); len(list) != 1 || list[0] == nil {
			t.Fatalf("faults %v, want one: the directory is not there", list)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // of the bubble
		synctest.Wait()
		if list := told.list(); list[len(list)-1] != nil {
			t.Errorf("the last fault is not mended: %v", list)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		r.Rewrite()
		synctest.Wait()
		stop()
		r, stop = process(t, filepath.Join(dir, "served.json"), &told)
		want(t, "written again", onRecord(t, r), map[string]string{"web": strict})
		stop()
	})
}

func TestWhatCanBeReadIsRecalledBesideWhatCannot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "served.json")
	text := `[{"gateway":"web","class":"coxswain","parameters":"{}"},
{"gateway":"shop/other","class":"coxswain","parameters":"{"},
{"gateway":"shop/web","class":"coxswain","parameters":"{\"routeScopes\":\"Single\"}"}]`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := record.New(record.Config{Path: path, OnFault: func(error) {}})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Recall()
	for _, s := range []string{path, `"web" is not the name of a Gateway`, "parameters of shop/other"} {
		if err == nil || !strings.Contains(err.Error(), s) {
			t.Errorf("error %v, want one with %q", err, s)
		}
	}
	want(t, "the good one", onRecord(t, r), map[string]string{"web": single})
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.Recall(); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v, want one that names the file", err)
	}
}
