//go:build linux

package source

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aether.io/aether/internal/source/disk"
)

// mount hangs for the paths that it is told to.
type mount struct {
	mu   sync.Mutex
	hung map[string]chan struct{} // by the end of the path
}

func (m *mount) disk() disk.Config {
	return disk.Config{Patience: 50 * time.Millisecond, Before: func(path string) {
		m.mu.Lock()
		var wait chan struct{}
		for end, c := range m.hung {
			if strings.HasSuffix(path, end) || strings.Contains(path, end+"/") {
				wait = c
			}
		}
		m.mu.Unlock()
		if wait != nil {
			<-wait
		}
	}}
}

func (m *mount) hang(end string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hung[end] = make(chan struct{})
}

func (m *mount) answer(end string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hung[end] != nil {
		close(m.hung[end])
		delete(m.hung, end)
	}
}

func newMount(t *testing.T) (*rig, *mount) {
	t.Helper()
	m := &mount{hung: map[string]chan struct{}{}}
	r := newRig(t)
	r.disk = m.disk()
	t.Cleanup(func() {
		for _, end := range []string{"/a.yaml", "/sub"} {
			m.answer(end)
		}
	})
	return r, m
}

func (r *rig) silent(file string) func() bool {
	return func() bool {
		for _, p := range r.last.Problems {
			if p.File == file && strings.Contains(p.Message, "does not answer") {
				return true
			}
		}
		return false
	}
}

func TestAFileThatDoesNotAnswerHoldsUpNoOther(t *testing.T) {
	r, m := newMount(t)
	r.write("a.yaml", configMap("a", "1"))
	r.write("b.yaml", configMap("b", "1"))
	r.start()
	m.hang("/a.yaml")
	r.write("a.yaml", configMap("a", "2"))
	r.write("b.yaml", configMap("b", "2"))
	r.wantValue("b", "2")
	r.until("a is reported", r.silent("a.yaml"))
	for _, n := range []string{"3", "4"} {
		r.write("b.yaml", configMap("b", n))
		r.wantValue("b", n)
	}
	if got := r.value("a"); got != "1" {
		t.Errorf("a is %q while it does not answer, want what it was", got)
	}
	m.answer("/a.yaml")
	r.wantValue("a", "2")
	if len(r.last.Problems) > 0 {
		t.Errorf("still wrong: %v", r.last.Problems)
	}
}

func TestWhatDoesNotAnswerAtTheStartIsWhatItWas(t *testing.T) {
	for name, file := range map[string]string{"a file": "a.yaml", "a folder": "sub/x.yaml"} {
		t.Run(name, func(t *testing.T) {
			r, m := newMount(t)
			end, where := "/a.yaml", "a.yaml"
			if name == "a folder" {
				end, where = "/sub", "sub"
			}
			r.write(file, configMap("a", "1"))
			r.write("b.yaml", configMap("b", "1"))
			r.start()
			r.stop()
			m.hang(end)
			r.write("b.yaml", configMap("b", "2"))
			r.start()
			r.wantValue("b", "2")
			r.until("it is reported", r.silent(where))
			if got := r.value("a"); got != "1" {
				t.Errorf("a is %q, want what it was before the restart", got)
			}
			r.write(file, configMap("a", "2"))
			m.answer(end)
			r.wantValue("a", "2")
		})
	}
}

func TestAStateDirectoryThatIsRemovedIsWrittenAgain(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.start()
	r.write("a.yaml", broken)
	r.problems("Refused a.yaml")
	before := r.object("ConfigMap/default/a").GetUID()
	// Something may be written into it while it is removed, so that it isn't empty in the end.
	err := os.RemoveAll(r.state)
	for tries := 0; err != nil && tries < 100; tries++ {
		err = os.RemoveAll(r.state)
	}
	r.must(err)
	r.source.Rewrite()
	r.write("b.yaml", configMap("b", "1"))
	r.wantValue("b", "1")
	r.restart()
	r.wantValue("a", "1")
	if now := r.object("ConfigMap/default/a").GetUID(); now != before {
		t.Errorf("after a restart it is another object: %s, %s before", now, before)
	}
}

func TestAStateDirectoryThatTakesNothingIsToldAndManifestsAreFollowed(t *testing.T) {
	r := newRig(t)
	copies := filepath.Join(r.state, "last-good")
	r.must(os.MkdirAll(r.state, 0o700))
	r.must(os.WriteFile(copies, nil, 0o600)) // as when the disk is full: nothing can be made in it
	r.write("a.yaml", configMap("a", "1"))
	r.start()
	r.wantValue("a", "1")
	r.until("it is told", func() bool {
		return slices.ContainsFunc(r.last.Problems, func(p Problem) bool {
			return p.File == r.state && strings.Contains(p.Message, "a.yaml")
		})
	})
	r.write("b.yaml", configMap("b", "1"))
	r.wantValue("b", "1")
	r.must(os.Remove(copies))
	r.problems()
	r.write("a.yaml", broken)
	r.restart()
	r.wantValue("a", "1") // from the copy that was made once it could be
}
