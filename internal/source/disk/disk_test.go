package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hung is a Disk on which operations below /hung/ are answered only once it is released.
type hung struct {
	*Disk
	t       *testing.T
	wake    chan struct{}
	release chan struct{}
	under   atomic.Int32 // operations that wait
	most    atomic.Int32
}

func newHung(t *testing.T) *hung {
	t.Helper()
	h := &hung{t: t, wake: make(chan struct{}, 1), release: make(chan struct{})}
	h.Disk = New(Config{
		Patience: 20 * time.Millisecond, Retry: time.Millisecond,
		Wake: func() {
			select {
			case h.wake <- struct{}{}:
			default:
			}
		},
		Before: func(path string) {
			if !strings.HasPrefix(path, "/hung/") {
				return
			}
			h.most.Store(max(h.most.Load(), h.under.Add(1)))
			<-h.release
			h.under.Add(-1)
		},
	})
	t.Cleanup(h.Close)
	return h
}

func (h *hung) ask(path string, sort Sort) error {
	_, err := Ask(h.Disk, path, sort, func() (struct{}, error) { return struct{}{}, nil })
	return err
}

// told waits until all of these have been told of.
func (h *hung) told(want []string) {
	h.t.Helper()
	deadline := time.After(20 * time.Second)
	got := map[string]bool{}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(want), func(p string) bool { return got[p] })
	}
	for len(missing()) > 0 {
		select {
		case <-h.wake:
		case <-deadline:
			h.t.Fatalf("never told of %v", missing())
		}
		for _, p := range h.Answered() {
			got[p] = true
		}
	}
}

func TestWhatIsNotAnsweredIsGivenUpAndToldOfLater(t *testing.T) {
	h := newHung(t)
	for range 3 {
		if err := h.ask("/hung/a", Here); !errors.Is(err, ErrNoAnswer) {
			t.Fatalf("got %v, want no answer", err)
		}
	}
	if n := h.under.Load(); n != 1 {
		t.Errorf("%d operations wait on one path", n)
	}
	if err := h.ask("/fine/a", Here); err != nil {
		t.Errorf("another path: %v", err)
	}
	if list := h.Answered(); list != nil {
		t.Errorf("told of %v too early", list)
	}
	close(h.release)
	h.told([]string{"/hung/a"})
	if err := h.ask("/hung/a", Here); err != nil {
		t.Errorf("once it answers: %v", err)
	}
}

func TestOnlySoManyWait(t *testing.T) {
	h := newHung(t)
	var all []string
	for _, sort := range []Sort{Follow, Here} {
		for i := range most {
			path := fmt.Sprintf("/hung/%v/%d", sort, i)
			all = append(all, path)
			if err := h.ask(path, sort); !errors.Is(err, ErrNoAnswer) {
				t.Fatalf("got %v, want no answer", err)
			}
		}
		want := most
		if sort == Follow {
			want /= 2
			if err := h.ask("/fine/a", Here); err != nil {
				t.Errorf("a file that is where it seems to be is not looked at for the sake of links: %v", err)
			}
		}
		if n := int(h.under.Load()); n != want {
			t.Errorf("%d operations wait, want %d", n, want)
		}
	}
	close(h.release)
	h.told(all)
}

func TestAReadThatGaveUpByItselfIsTriedAgain(t *testing.T) {
	h := newHung(t)
	tries := make(chan int)
	go func() {
		for i := range 3 {
			tries <- i
		}
	}()
	_, err := Ask(h.Disk, "/fine/slow", Here, func() (struct{}, error) {
		if <-tries < 2 {
			return struct{}{}, fmt.Errorf("read: %w", os.ErrDeadlineExceeded)
		}
		<-h.release
		return struct{}{}, nil
	})
	if !errors.Is(err, ErrNoAnswer) {
		t.Fatalf("got %v, want no answer", err)
	}
	close(h.release)
	h.told([]string{"/fine/slow"})
}

func TestCloseEndsWhatIsTriedAgain(t *testing.T) {
	d := New(Config{Patience: time.Millisecond, Retry: time.Hour})
	if _, err := Ask(d, "a", Here, func() (int, error) { return 0, os.ErrDeadlineExceeded }); !errors.Is(err, ErrNoAnswer) {
		t.Fatal(err)
	}
	d.Close() // or else the goroutine is found at the end
}

// A path that needs longer than is waited for would otherwise never be read.
func TestWhatWasSlowGetsMoreTime(t *testing.T) {
	h := newHung(t)
	if err := h.ask("/hung/a", Here); !errors.Is(err, ErrNoAnswer) {
		t.Fatal(err)
	}
	close(h.release)
	h.told([]string{"/hung/a"})
	if patience, err := h.begin("/hung/a", Here); err != nil || patience < 40*time.Millisecond {
		t.Errorf("waits %s, %v, want twice what it took", patience, err)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("file"), []byte("text"), 0o600))
	must(os.Mkdir(at("folder"), 0o700))
	must(syscall.Mkfifo(at("pipe"), 0o600))
	must(os.Symlink("file", at("link")))
	must(os.Symlink("pipe", at("link to a pipe")))
	must(os.Symlink("/dev/zero", at("link to a device")))
	must(os.Symlink("nowhere", at("link to nothing")))
	d := New(Config{})
	defer d.Close()
	for name, want := range map[string]string{
		at("file"): "text", at("link"): "text",
		at("none"): ErrGone.Error(), at("file") + "/below": ErrGone.Error(), at("folder"): ErrGone.Error(),
		at("pipe"): "is a pipe, not a regular file", at("link to a pipe"): "is a pipe, not a regular file",
		at("link to a device"): "is a device, not a regular file",
		at("link to nothing"):  "is a link to what is not there: stat: no such file or directory",
		"/proc/self/status":    "has at least 5 bytes, and at most 4 are read", // its size is said to be 0
	} {
		data, err := d.Read(name, Follow, 4)
		got := string(data)
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if errors.Is(ErrGone, ErrNoAnswer) {
		t.Error("what is gone did answer")
	}
}
