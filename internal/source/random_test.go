//go:build linux

package source

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/object"
)

// TestRandom does random things to a directory. Wherever that leads, a restart comes to
// the same, with every age and generation; and once nothing is wrong with any file any
// more, a source that has never seen the directory before comes to the same objects.
func TestRandom(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 7))
			r := newRig(t).start()
			for range 40 {
				r.happen(rnd)
			}
			r.settle()
			objects, problems := r.stamped(), r.lines()
			r.restart()
			if d := cmp.Diff(objects, r.stamped()); d != "" {
				t.Fatalf("a restart changes objects (-before +after):\n%s", d)
			}
			if d := cmp.Diff(problems, r.lines()); d != "" {
				t.Fatalf("a restart changes problems (-before +after):\n%s", d)
			}

			for i, p := range files {
				if _, err := os.Stat(r.path(p)); err == nil {
					r.write(p, good(rnd, i))
				}
			}
			r.settle()
			objects, problems = r.bare(), r.lines()
			r.stop()
			r.state = filepath.Join(filepath.Dir(r.state), "another")
			r.last.Mark.Epoch = 0
			r.start()
			if d := cmp.Diff(objects, r.bare()); d != "" {
				t.Errorf("following differs from reading afresh (-followed +fresh):\n%s", d)
			}
			if d := cmp.Diff(problems, r.lines()); d != "" {
				t.Errorf("problems differ from reading afresh (-followed +fresh):\n%s", d)
			}
		})
	}
}

var files = []string{"a.yaml", "b.yaml", "sub/a.yaml", "sub/c.yml", "sub/sub/d.yaml", "e.yaml"}

// good is a file with nothing wrong, but perhaps with what another file has, too.
func good(rnd *rand.Rand, salt int) string {
	var docs []string
	for _, name := range []string{"a", "b", "c"} {
		if rnd.IntN(2) == 0 {
			docs = append(docs, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":"ns-%d"},"data":{"key":"%d"}}`, name, rnd.IntN(2), rnd.IntN(3)))
		}
	}
	docs = append(docs, fmt.Sprintf(`{"apiVersion":"gateway.networking.k8s.io/v1","kind":"HTTPRoute","metadata":{"name":"r%d"},"spec":{"hostnames":["h%d.example"]}}`, salt, rnd.IntN(3)))
	return strings.Join(docs, "\n---\n")
}

func (r *rig) happen(rnd *rand.Rand) {
	i := rnd.IntN(len(files))
	p := files[i]
	switch rnd.IntN(10) {
	case 0:
		r.write(p, broken)
	case 1:
		r.write(p, good(rnd, i), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"ns-0"},"data":{"key":[]}}`)
	case 2:
		r.write(p, good(rnd, i), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`)
	case 3:
		_ = os.Remove(r.path(p))
	case 4:
		_ = os.Rename(r.path(p), r.path(files[rnd.IntN(len(files))]))
	case 5:
		_ = os.RemoveAll(r.path(filepath.Dir(files[2+rnd.IntN(3)])))
	default:
		r.write(p, good(rnd, i))
	}
	for rnd.IntN(3) == 0 { // take a batch, if there is one
		select {
		case b := <-r.batches:
			r.apply(b)
		default:
		}
	}
}

// settle waits until everything that has happened so far has had its effect: a file that
// appears now and goes again is later than all of it.
func (r *rig) settle() {
	r.Helper()
	r.write("zz.yaml", configMap("last", "1"))
	r.wantValue("last", "1")
	r.remove("zz.yaml")
	last := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "last"}
	r.until("the last file is gone", func() bool { return r.objects[last] == nil })
}

// stamped is each object with its metadata, but for the position.
func (r *rig) stamped() map[string]object.Object {
	out := map[string]object.Object{}
	for k, o := range r.objects {
		o = o.DeepCopyObject().(object.Object)
		o.SetResourceVersion("")
		out[k.String()] = o
	}
	return out
}

// bare is each object without what depends on when it was seen.
func (r *rig) bare() map[string]object.Object {
	out := r.stamped()
	for _, o := range out {
		o.SetUID("")
		o.SetGeneration(0)
		o.SetCreationTimestamp(metav1.Time{})
	}
	return out
}

func (r *rig) lines() []string {
	var out []string
	for _, p := range r.last.Problems {
		out = append(out, string(p.Severity)+" "+p.String())
	}
	return out
}
