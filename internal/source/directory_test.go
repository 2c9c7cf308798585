//go:build linux

package source

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"aether.io/aether/internal/crd"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/source/disk"
	"aether.io/aether/internal/test/keypair"
	"aether.io/aether/internal/watermark"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// crds compiles the definitions once for all tests.
var crds = sync.OnceValues(crd.New)

// rig is a directory that is followed, and the state that its batches add up to.
type rig struct {
	*testing.T
	dir, state string
	now        time.Time
	disk       disk.Config
	source     *Directory
	stop       func()
	batches    chan Batch

	objects map[object.Key]object.Object
	refused map[object.Key]string
	last    Batch
	all     []Batch
}

func newRig(t *testing.T) *rig {
	t.Helper()
	base := t.TempDir()
	r := &rig{T: t, dir: filepath.Join(base, "manifests"), state: filepath.Join(base, "state"), now: time.Unix(1_700_000_000, 5).UTC()}
	r.must(os.Mkdir(r.dir, 0o755))
	return r
}

// start begins to follow the directory and waits for the first batch.
func (r *rig) start() *rig {
	r.Helper()
	v, err := crds()
	r.must(err)
	now := r.now
	d, err := NewDirectory(DirectoryConfig{Dir: r.dir, StateDir: r.state, Validator: v, Now: func() time.Time { return now }})
	r.must(err)
	d.disk = r.disk
	r.source = d
	r.objects, r.all, r.batches = map[object.Key]object.Object{}, nil, make(chan Batch)
	r.refused = map[object.Key]string{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	batches := r.batches
	go func() {
		done <- d.Run(ctx, func(ctx context.Context, b Batch) error {
			select {
			case batches <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("Run: %v", err)
		}
	})
	r.Cleanup(r.stop)
	r.next(time.After(60 * time.Second))
	return r
}

// restart stops and starts again, a day later.
func (r *rig) restart() *rig {
	r.Helper()
	r.stop()
	r.now = r.now.Add(24 * time.Hour)
	return r.start()
}

func (r *rig) next(deadline <-chan time.Time) bool {
	select {
	case b := <-r.batches:
		r.apply(b)
		return true
	case <-deadline:
		return false
	}
}

// apply adds a batch to the state, and checks what is promised of every batch.
func (r *rig) apply(b Batch) {
	seen := map[object.Key]bool{}
	for _, c := range b.Changes {
		if seen[c.Key] {
			r.Errorf("batch has two changes of %s", c.Key)
		}
		seen[c.Key] = true
		if c.Object == nil {
			if r.objects[c.Key] == nil && c.Refused == r.refused[c.Key] {
				r.Errorf("%s is removed and was not there", c.Key)
			}
			delete(r.objects, c.Key)
		} else {
			r.objects[c.Key] = c.Object
		}
		r.refused[c.Key] = c.Refused
	}
	if !b.Synced || b.Mark.Behind(r.last.Mark) {
		r.Errorf("synced %v, mark %v after %v", b.Synced, b.Mark, r.last.Mark)
	}
	if !slices.IsSortedFunc(b.Problems, compareProblems) {
		r.Errorf("problems are not sorted: %v", b.Problems)
	}
	r.last, r.all = b, append(r.all, b)
}

func (r *rig) until(what string, done func() bool) {
	r.Helper()
	deadline := time.After(60 * time.Second)
	for !done() {
		if !r.next(deadline) {
			r.Fatalf("%s: not within 10 s; objects %v, problems %v", what, r.keys(), r.last.Problems)
		}
	}
}

// keys lists the objects, without the namespaces that are only implied.
func (r *rig) keys() []string {
	var out []string
	for k := range r.objects {
		if k != defaultNS {
			out = append(out, k.String())
		}
	}
	slices.Sort(out)
	return out
}

var defaultNS = object.Key{Kind: object.Namespace, Name: "default"}

func (r *rig) want(keys ...string) {
	r.Helper()
	slices.Sort(keys)
	r.until(fmt.Sprintf("want %v", keys), func() bool { return slices.Equal(r.keys(), keys) })
}

// problems waits until exactly the wanted problems are there, each given by a part of its line.
func (r *rig) problems(want ...string) {
	r.Helper()
	r.until(fmt.Sprintf("want problems %q", want), func() bool {
		if len(r.last.Problems) != len(want) {
			return false
		}
		for i, p := range r.last.Problems {
			if !strings.Contains(string(p.Severity)+" "+p.String(), want[i]) {
				return false
			}
		}
		return true
	})
}

func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *rig) path(p string) string { return filepath.Join(r.dir, p) }

// write renames a finished file into place.
func (r *rig) write(p string, docs ...string) {
	r.Helper()
	r.must(os.MkdirAll(filepath.Dir(r.path(p)), 0o755))
	temp := filepath.Join(filepath.Dir(r.path(p)), ".tmp")
	r.must(os.WriteFile(temp, []byte(strings.Join(docs, "\n---\n")), 0o644))
	r.must(os.Rename(temp, r.path(p)))
}

func (r *rig) remove(p string) {
	r.Helper()
	r.must(os.RemoveAll(r.path(p)))
}

func (r *rig) object(key string) object.Object {
	r.Helper()
	k, err := object.ParseKey(key)
	r.must(err)
	o := r.objects[k]
	if o == nil {
		r.Fatalf("there is no %s among %v", key, r.keys())
	}
	return o
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {key: %q}\n", name, value)
}

func (r *rig) value(name string) string {
	r.Helper()
	return r.object("ConfigMap/default/" + name).(*corev1.ConfigMap).Data["key"]
}

func (r *rig) wantValue(name, value string) {
	r.Helper()
	key := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: name}
	r.until(fmt.Sprintf("%s is %s", name, value), func() bool { return r.objects[key] != nil && r.value(name) == value })
}

func route(name, host string) string {
	return fmt.Sprintf("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s}\nspec: {parentRefs: [{name: gw}], hostnames: [%s]}\n", name, host)
}

const (
	broken  = "a: [\n"
	refused = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {key: [1]}\n"
	unnamed = "apiVersion: v1\nkind: ConfigMap\nmetadata: {}\n"
)

func TestEditsAreFollowed(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"), route("r", "a.example"))
	r.write("sub/deeper/b.json", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"shop"},"stringData":{"a":"b"}}]}`)
	r.start()
	r.want("ConfigMap/default/a", "HTTPRoute/default/r", "Secret/shop/s", "Namespace/shop")
	r.problems()
	if got := r.object("HTTPRoute/default/r").(*gatewayv1.HTTPRoute); got.Spec.Hostnames[0] != "a.example" || *got.Spec.ParentRefs[0].Kind != "Gateway" {
		t.Errorf("route %v", got.Spec)
	}
	if got := string(r.object("Secret/shop/s").(*corev1.Secret).Data["a"]); got != "b" {
		t.Errorf("secret's stringData came out as %q", got)
	}

	r.write("a.yaml", configMap("a", "2"), route("r", "a.example"))
	r.wantValue("a", "2")
	if len(r.last.Changes) != 1 || !slices.Equal(r.last.Files, []string{"a.yaml"}) {
		t.Errorf("changes %v of files %v, want one of a.yaml", r.last.Changes, r.last.Files)
	}
	r.write("sub/new/c.yaml", configMap("c", "1"))
	r.wantValue("c", "1")
	r.write("a.yaml", configMap("a", "2"))
	r.want("ConfigMap/default/a", "ConfigMap/default/c", "Secret/shop/s", "Namespace/shop")
	r.must(os.Rename(r.path("sub"), r.path("other")))
	r.remove("other/deeper")
	r.want("ConfigMap/default/a", "ConfigMap/default/c")
	r.remove("a.yaml")
	r.remove("other")
	r.want()
	if r.objects[defaultNS] != nil {
		t.Error("the default namespace is there with nothing in it")
	}
}

func TestOneBatchHoldsWhatComesWhileTheSinkIsBusy(t *testing.T) {
	r := newRig(t).start()
	r.write("0.yaml", configMap("c0", "1"))
	for i := range 50 { // nobody takes a batch meanwhile
		r.write(fmt.Sprintf("%d.yaml", i+1), configMap(fmt.Sprintf("c%d", i+1), "1"))
	}
	r.until("all are there", func() bool { return len(r.keys()) == 51 })
	if got := len(r.all); got > 4 { // the first, that of 0.yaml, the rest; one to spare for a file read while it was being renamed
		t.Errorf("%d batches, want what came meanwhile in one", got)
	}
}

func TestGenerationCountsContent(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", route("r", "a.example"))
	r.start()
	at := func(generation int64) object.Object {
		t.Helper()
		r.until(fmt.Sprintf("generation %d", generation), func() bool { return r.object("HTTPRoute/default/r").GetGeneration() == generation })
		return r.object("HTTPRoute/default/r")
	}
	first := at(1)
	r.write("a.yaml", route("r", "b.example"))
	second := at(2)
	r.write("a.yaml", strings.Replace(route("r", "b.example"), "name: r", "name: r, labels: {a: b}", 1))
	r.until("the label", func() bool { return r.object("HTTPRoute/default/r").GetLabels()["a"] == "b" })
	third := at(2)
	if first.GetGeneration() != 1 || first.GetUID() != second.GetUID() || first.GetUID() != third.GetUID() || first.GetUID() == "" {
		t.Errorf("generation %d, uids %s %s %s", first.GetGeneration(), first.GetUID(), second.GetUID(), third.GetUID())
	}
	if versions := []string{first.GetResourceVersion(), second.GetResourceVersion(), third.GetResourceVersion()}; len(slices.Compact(versions)) != 3 {
		t.Errorf("resource versions %v, want three", versions)
	}

	r.restart()
	again := at(2)
	if !again.GetCreationTimestamp().Time.Equal(first.GetCreationTimestamp().Time) || again.GetUID() != first.GetUID() {
		t.Errorf("after a restart created %v, want %v", again.GetCreationTimestamp(), first.GetCreationTimestamp())
	}

	r.stop()
	r.write("a.yaml", route("r", "c.example")) // while nobody looks
	r.restart()
	at(3)

	r.remove("a.yaml")
	r.want()
	r.write("a.yaml", route("r", "c.example"))
	r.want("HTTPRoute/default/r")
	if made := at(1); made.GetUID() == first.GetUID() || !made.GetCreationTimestamp().Time.Equal(r.now) {
		t.Errorf("made again it is the old object, created %v", made.GetCreationTimestamp())
	}
}

func TestObjectsThatComeTogetherAreOfOneAge(t *testing.T) {
	r := newRig(t)
	r.write("z.yaml", configMap("z", "1"))
	r.start()
	r.restart()
	r.write("a.yaml", configMap("a", "1"))
	r.wantValue("a", "1")
	r.restart()
	older, younger := r.object("ConfigMap/default/z").GetCreationTimestamp(), r.object("ConfigMap/default/a").GetCreationTimestamp()
	if !older.Time.Before(younger.Time) {
		t.Errorf("z is of %v, a of %v; want z older", older, younger)
	}
}

func TestAnInvalidObjectKeepsItsLastGoodVersion(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"), configMap("b", "1"))
	r.start()
	r.write("a.yaml", refused, configMap("b", "2"))
	r.wantValue("b", "2")
	r.problems("Refused a.yaml document 1 ConfigMap/default/a: data: want string, got array")
	if got := r.value("a"); got != "1" {
		t.Errorf("a is %q, want its last good version", got)
	}
	r.restart()
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
	r.problems("Refused a.yaml document 1 ConfigMap/default/a: data")
	if got := r.value("a"); got != "1" {
		t.Errorf("after a restart a is %q, want its last good version", got)
	}
	r.write("a.yaml", configMap("a", "3"), configMap("b", "2"))
	r.wantValue("a", "3")
	r.problems()
	r.write("a.yaml", refused)
	r.want("ConfigMap/default/a")
	r.remove("a.yaml")
	r.want()
	r.problems()
	r.write("a.yaml", refused)
	r.problems("Refused a.yaml document 1")
	r.want()
}

// An API server would take these: what was in use stays so, and whoever uses it is told.
func TestMaterialThatNobodyCouldUseDoesNotReplaceWhatIsInUse(t *testing.T) {
	r := newRig(t)
	ca := func(text string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca}\ndata: {ca.crt: %q}\n", text)
	}
	key := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "ca"}
	told := func(part string) func() bool {
		return func() bool {
			for _, c := range r.last.Changes {
				if c.Key == key {
					return (part == "") == (c.Refused == "") && strings.Contains(c.Refused, part)
				}
			}
			return false
		}
	}
	good := string(keypair.New(t, &x509.Certificate{}, nil).CertPEM())
	r.write("a.yaml", ca("damaged"))
	r.start()
	r.until("told that there is none", told("no PEM certificate"))
	if r.objects[key] != nil {
		t.Error("it is in effect")
	}
	r.write("a.yaml", ca(good))
	r.until("told that all is well", told(""))
	r.want("ConfigMap/default/ca")
	r.write("a.yaml", ca(good+"-----BEGIN CERTIFICATE-----\n"))
	r.until("told that the newest is refused", told("cut off or damaged"))
	r.restart()
	if !told("cut off or damaged")() {
		t.Errorf("after a restart: told %v", r.last.Changes)
	}
	if got := r.object(key.String()).(*corev1.ConfigMap).Data["ca.crt"]; got != good {
		t.Errorf("after a restart: in effect is %q", got)
	}
	r.problems("Refused a.yaml document 1 ConfigMap/default/ca: data: ca.crt: a PEM block is cut off or damaged")
	r.remove("a.yaml")
	r.until("told that it is gone", told(""))
	r.want()
}

// Who renames a file and makes a mistake in it must not get the defaults instead.
func TestAnInvalidObjectKeepsItsLastGoodVersionInAnotherFileToo(t *testing.T) {
	r := newRig(t)
	r.write("z.yaml", configMap("a", "1"))
	r.start()
	r.write("b.yaml", refused)
	r.problems("Refused b.yaml document 1")
	r.remove("z.yaml")
	r.write("c.yaml", configMap("c", "1"))
	r.want("ConfigMap/default/a", "ConfigMap/default/c")
	r.wantValue("a", "1")
	r.restart()
	r.wantValue("a", "1")
	r.stop()
	r.must(os.Rename(r.path("b.yaml"), r.path("y.yaml"))) // while nobody looks
	r.restart()
	r.wantValue("a", "1")
	r.restart()
	r.wantValue("a", "1")
	r.write("a.yaml", configMap("a", "2"))
	r.wantValue("a", "2")
	r.remove("a.yaml")
	r.remove("y.yaml")
	r.want("ConfigMap/default/c")
}

// A generated file that is not what it should be must not drown all else.
func TestARefusedObjectSaysWhatIsInEffectInstead(t *testing.T) {
	r := newRig(t)
	r.write("b.yaml", refused)
	r.start()
	r.problems("data: want string, got array; there is no good version of it, so it is not in effect")
	r.write("b.yaml", configMap("a", "1"))
	r.wantValue("a", "1")
	r.problems()
	r.write("b.yaml", refused)
	r.problems("data: want string, got array; its last good version stays in effect")
	r.write("c.yaml", configMap("a", "2"))
	r.problems("; its last good version stays in effect", "is already in b.yaml, which comes first: what is written here has no effect")
	r.write("a.yaml", refused)
	r.problems("; the version in b.yaml is in effect", "; its last good version stays in effect", "is already in b.yaml")
}

func TestEachThingThatADocumentIsRefusedForIsToldUpToABound(t *testing.T) {
	r := newRig(t).start()
	hosts := func(n int) string { return strings.TrimSuffix(strings.Repeat("7, ", n), ", ") }
	r.write("a.yaml", route("r", hosts(3)))
	r.problems("spec.hostnames[0]: must be of type string, not 7", "spec.hostnames[1]: ", "spec.hostnames[2]: must be of type string, not 7: put quotes around it; there is no good version")
	r.write("a.yaml", route("r", hosts(maxFindings+5)))
	want := slices.Repeat([]string{"must be of type string"}, maxFindings)
	want[maxFindings-1] = "put quotes around it; and 5 more; there is no good version"
	r.problems(want...)
}

func TestAProblemIsToldAnewWithEachEditOfItsObject(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.write("b.yaml", configMap("a", "2"), configMap("b", "1"))
	r.start()
	r.problems("b.yaml document 1 ConfigMap/default/a: is already in a.yaml")
	r.write("b.yaml", configMap("a", "3"), configMap("b", "1"))
	before := len(r.all)
	r.until("a batch of an edit without effect", func() bool { return len(r.all) > before })
	if len(r.last.Changes) != 0 || len(r.last.Problems) != 1 {
		t.Errorf("changes %v, problems %v", r.last.Changes, r.last.Problems)
	}
}

func TestAProblemHasTheTimeOfTheLastEditOfItsObject(t *testing.T) {
	all, first, later := map[string][]Problem{}, time.Unix(1, 0), time.Unix(2, 0)
	list := func() []Problem { return []Problem{{Object: "a", Message: "x"}, {Object: "b", Message: "x"}} }
	setProblems(all, "f", list(), nil, first)
	if setProblems(all, "f", list(), nil, later) {
		t.Error("the same problems are a change")
	}
	if !setProblems(all, "f", list(), map[string]bool{"b": true}, later) || !all["f"][0].Since.Equal(first) || !all["f"][1].Since.Equal(later) {
		t.Errorf("problems %v, want the second since later", all["f"])
	}
}

func TestANamespaceThatNobodyWroteIsImplied(t *testing.T) {
	r := newRig(t).start()
	namespace := func() (implied, known bool) {
		for _, c := range r.last.Changes {
			if c.Key == defaultNS {
				return c.Implied, true
			}
		}
		return false, false
	}
	expect := func(want bool, what string) {
		t.Helper()
		if implied, known := namespace(); !known || implied != want {
			t.Errorf("%s: implied %v, known %v", what, implied, known)
		}
	}
	r.write("a.yaml", configMap("a", "1"))
	r.wantValue("a", "1")
	expect(true, "with its first object")
	r.write("n.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: default, labels: {x: z}}")
	r.until("it is written", func() bool { return r.objects[defaultNS].GetLabels()["x"] == "z" })
	expect(false, "written")
	r.remove("n.yaml")
	r.until("it is not written", func() bool { return r.objects[defaultNS].GetLabels()["x"] == "" })
	expect(false, "not written any more")
	r.remove("a.yaml")
	r.want()
	expect(true, "with its last object")
}

func TestTheProblemsOfOneFileAreBounded(t *testing.T) {
	r := newRig(t)
	r.start()
	for _, edit := range []string{"1", "2"} {
		r.write("a.yaml", strings.Repeat("--- {kind: a, b: "+edit+"}\n", 20_000))
		r.write("b.yaml", configMap("b", edit))
		r.wantValue("b", edit)
		r.until("there are problems", func() bool { return len(r.last.Problems) > 0 })
		if n := len(r.last.Problems); n != maxProblems+1 || !strings.Contains(r.last.Problems[0].Message, "19900 more") {
			t.Fatalf("%d problems, the first %v", n, r.last.Problems[0])
		}
	}
}

func TestAnUnreadableFileKeepsItsObjects(t *testing.T) {
	for name, bad := range map[string]string{"not YAML": broken, "empty": "", "only a comment": "# later\n"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.write("a.yaml", configMap("a", "1"), configMap("b", "1"))
			r.start()
			r.write("a.yaml", bad)
			r.problems("Refused a.yaml")
			r.want("ConfigMap/default/a", "ConfigMap/default/b")
			if since := r.last.Problems[0].Since; !since.Equal(r.now) {
				t.Errorf("problem since %v, want %v", since, r.now)
			}
			r.restart()
			r.problems("what was last read from the file stays in effect (objects: 2)")
			r.want("ConfigMap/default/a", "ConfigMap/default/b")

			r.stop()
			r.write("a.yaml", configMap("a", "2"))
			r.start()
			r.wantValue("a", "2")
			r.want("ConfigMap/default/a")
			r.problems()
			r.stop()
			r.write("a.yaml", bad) // while nobody looks
			r.start()
			r.problems("Refused a.yaml")
			r.wantValue("a", "2")
		})
	}
}

func TestAFileThatIsGoneLeavesNothing(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.start()
	r.stop()
	r.remove("a.yaml")
	r.restart()
	r.want()
	r.stop()
	r.write("a.yaml", broken)
	r.start()
	r.problems("Refused a.yaml")
	r.want()
	r.stop()
	copies, err := os.ReadDir(filepath.Join(r.state, "last-good"))
	r.must(err)
	if len(copies) != 0 {
		t.Errorf("copies left: %v", copies)
	}
}

func TestADocumentThatIsNoObjectHoldsBackRemovalsOnly(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"), configMap("b", "1"))
	r.start()
	r.write("a.yaml", configMap("a", "2"), unnamed)
	r.wantValue("a", "2")
	r.problems("Warning a.yaml ConfigMap/default/b: stays in effect", "Refused a.yaml document 2: metadata.name: is required")
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
	r.restart()
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
	r.write("a.yaml", configMap("a", "2"), "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}")
	r.want("ConfigMap/default/a")
	r.problems("Ignored a.yaml document 2: apps/v1 Deployment is not a kind that is read")
}

func TestTheFirstFileHasAnObject(t *testing.T) {
	r := newRig(t)
	r.write("m.yaml", configMap("a", "m"))
	r.start()
	r.write("z.yaml", configMap("a", "z"))
	r.problems("Refused z.yaml document 1 ConfigMap/default/a: is already in m.yaml, which comes first")
	if got := r.value("a"); got != "m" {
		t.Errorf("a is %s, want m's", got)
	}
	r.write("b.yaml", configMap("a", "b"))
	r.wantValue("a", "b")
	r.problems("m.yaml document 1 ConfigMap/default/a: is already in b.yaml", "z.yaml document 1 ConfigMap/default/a: is already in b.yaml")
	uid := r.object("ConfigMap/default/a").GetUID()
	r.remove("b.yaml")
	r.wantValue("a", "m")
	r.remove("m.yaml")
	r.wantValue("a", "z")
	r.problems()
	if r.object("ConfigMap/default/a").GetUID() != uid {
		t.Error("the object is another one after it changed files")
	}
	r.write("c.yaml", refused) // has nothing good to offer
	r.problems("Refused c.yaml document 1 ConfigMap/default/a: data")
	r.wantValue("a", "z")
	r.write("z.yaml", configMap("a", "z"), configMap("a", "again"))
	r.problems("Refused c.yaml", "Refused z.yaml document 2 ConfigMap/default/a: is already in document 1 of this file")
}

func TestARenamedFileIsNoChange(t *testing.T) {
	r := newRig(t)
	r.write("b.yaml", configMap("a", "1"))
	r.write("k.yaml", configMap("k", "1"))
	r.start()
	for _, to := range []string{"z.yaml", "a.yaml"} {
		from, err := filepath.Glob(r.path("[abz].yaml"))
		r.must(err)
		r.must(os.Rename(from[0], r.path(to)))
		r.write("k.yaml", configMap("k", to))
		r.wantValue("k", to)
	}
	r.remove("k.yaml")
	r.want("ConfigMap/default/a")
	for _, b := range r.all[1:] {
		for _, c := range b.Changes {
			if c.Key.Name == "a" {
				t.Errorf("a rename made the change %v", c)
			}
		}
		if len(b.Problems) > 0 {
			t.Errorf("a rename made problems: %v", b.Problems)
		}
	}
}

func TestNamespacesThatAreReferredToExist(t *testing.T) {
	r := newRig(t)
	in := func(ns string) string {
		return strings.Replace(configMap("a", "1"), "name: a", "name: a, namespace: "+ns, 1)
	}
	r.write("a.yaml", in("shop"))
	r.start()
	ns := func() *corev1.Namespace { return r.object("Namespace/shop").(*corev1.Namespace) }
	if d := cmp.Diff(map[string]string{"kubernetes.io/metadata.name": "shop"}, ns().Labels); d != "" {
		t.Error(d)
	}
	uid := ns().UID
	r.write("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}")
	r.until("the namespace has its label", func() bool { return ns().Labels["team"] == "a" })
	if ns().UID != uid || ns().Labels["kubernetes.io/metadata.name"] != "shop" {
		t.Errorf("namespace %v", ns())
	}
	r.remove("ns.yaml")
	r.until("the namespace is implied again", func() bool { return ns().Labels["team"] == "" })
	r.remove("a.yaml")
	r.want()
}

func TestTheDirectoryItselfGoesAndComesBack(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.write("sub/b.yaml", configMap("b", "1"))
	r.start()
	r.must(os.Rename(r.dir, r.dir+"-away"))
	r.problems("Refused directory: ")
	r.want("ConfigMap/default/a", "ConfigMap/default/b")

	r.restart() // without it
	r.problems("Refused directory: ")
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
	r.write("sub/b.yaml", configMap("b", "2"))
	r.wantValue("b", "2")
	r.want("ConfigMap/default/b")
	r.problems()
}

func TestADirectoryThatNeverWasIsAnError(t *testing.T) {
	r := newRig(t)
	v, err := crds()
	r.must(err)
	d, err := NewDirectory(DirectoryConfig{Dir: r.path("typo"), StateDir: r.state, Validator: v})
	r.must(err)
	err = d.Run(t.Context(), func(context.Context, Batch) error { return errors.New("a batch") })
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Run: %v, want an error that the directory does not exist", err)
	}
}

func TestNewDirectoryRefusesAStateAmongTheManifests(t *testing.T) {
	v, err := crds()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for state, ok := range map[string]bool{"": false, "state": false, "a/.state": false, ".aether": true, "../state": true} {
		_, err := NewDirectory(DirectoryConfig{Dir: dir, StateDir: filepath.Join(dir, state), Validator: v})
		if (err == nil) != ok {
			t.Errorf("state directory %q: %v", state, err)
		}
	}
	if _, err := NewDirectory(DirectoryConfig{Validator: v}); err == nil {
		t.Error("no directory at all is accepted")
	}
}

// What is remembered would else be read as manifests, and remembered in turn, without end.
func TestALinkToTheStateDoesNotMakeItManifests(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.must(os.Symlink("..", r.path("up")))
	r.start()
	r.write("b.yaml", configMap("b", "1"))
	r.wantValue("b", "1")
	r.restart()
	r.wantValue("b", "1")
	r.problems()
	for _, f := range r.last.Files {
		if strings.HasPrefix(f, "up/state/") {
			t.Errorf("%s was read", f)
		}
	}
}

func TestTheSinksErrorEndsRun(t *testing.T) {
	r := newRig(t)
	v, err := crds()
	r.must(err)
	d, err := NewDirectory(DirectoryConfig{Dir: r.dir, StateDir: r.state, Validator: v})
	r.must(err)
	full := errors.New("full")
	if err := d.Run(t.Context(), func(context.Context, Batch) error { return full }); !errors.Is(err, full) {
		t.Errorf("Run: %v, want the sink's error", err)
	}
}

func TestTheMarkNeverGoesBack(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"))
	r.start()
	first := r.last.Mark
	if len(first.Positions) != len(object.Kinds()) {
		t.Errorf("positions %v, want one a kind", first.Positions)
	}
	r.write("a.yaml", configMap("a", "2"))
	r.wantValue("a", "2")
	second := r.last.Mark
	if !first.Behind(second) || second.Positions["ConfigMap"] <= first.Positions["ConfigMap"] || second.Positions["Gateway"] != first.Positions["Gateway"] {
		t.Errorf("mark %v after %v", second, first)
	}
	r.restart()
	third := r.last.Mark
	if third.Behind(second) || third.Epoch != second.Epoch || third.Positions["Gateway"] <= second.Positions["ConfigMap"] {
		t.Errorf("mark %v after a restart from %v", third, second)
	}
	for name, harm := range map[string]func(path string) error{
		"is lost":    os.Remove,
		"is garbage": func(path string) error { return os.WriteFile(path, []byte("{"), 0o600) },
	} {
		before := r.last.Mark
		r.stop()
		r.must(harm(filepath.Join(r.state, "source", "position.json")))
		r.last.Mark = watermark.Mark{}
		r.restart()
		if now := r.last.Mark; now.Epoch <= before.Epoch {
			t.Errorf("epoch %d after %d when the position %s", now.Epoch, before.Epoch, name)
		}
	}
}

func TestATornJournalLosesOneRecordOnly(t *testing.T) {
	r := newRig(t)
	r.write("a.yaml", configMap("a", "1"), configMap("b", "1"))
	r.start()
	before := r.object("ConfigMap/default/a").GetUID()
	r.stop()
	journal := filepath.Join(r.state, "source", "objects.jsonl")
	data, err := os.ReadFile(journal)
	r.must(err)
	r.must(os.WriteFile(journal, append(data, `{"key":"ConfigMap/def`...), 0o600))
	r.restart()
	r.write("a.yaml", configMap("a", "2"), configMap("b", "1"))
	r.wantValue("a", "2")
	r.restart()
	if o := r.object("ConfigMap/default/a"); o.GetGeneration() != 2 || o.GetUID() != before {
		t.Errorf("a is generation %d, uid %s; want 2, %s", o.GetGeneration(), o.GetUID(), before)
	}
}

func TestSecretsAreKeptFromOthers(t *testing.T) {
	r := newRig(t)
	r.write("s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {a: hush}")
	r.start()
	r.stop()
	found := 0
	r.must(filepath.WalkDir(r.state, func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 && p != r.state {
			t.Errorf("%s has mode %v", p, info.Mode())
		}
		if data, err := os.ReadFile(p); err == nil && strings.Contains(string(data), "hush") {
			found++
		}
		return err
	}))
	if found != 1 {
		t.Errorf("%d copies of the Secret, want 1", found)
	}
}

func TestWhatWasGivenAwayDoesNotChange(t *testing.T) {
	r := newRig(t)
	r.write("b.yaml", configMap("a", "b"))
	r.start()
	b := r.object("ConfigMap/default/a")
	frozen := b.DeepCopyObject()
	r.write("a.yaml", configMap("a", "a"))
	r.wantValue("a", "a")
	r.remove("a.yaml")
	r.wantValue("a", "b")
	if r.object("ConfigMap/default/a").GetGeneration() != 3 {
		t.Errorf("generation %d, want 3", r.object("ConfigMap/default/a").GetGeneration())
	}
	if d := cmp.Diff(frozen, b); d != "" {
		t.Error("an object changed after it was given away", d)
	}
}

func TestATransitionRuleComparesWithWhatIsInEffect(t *testing.T) {
	class := func(controller string) string {
		return "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: c}\nspec: {controllerName: " + controller + "}"
	}
	r := newRig(t)
	r.write("c.yaml", class("a.io/b"))
	r.start()
	r.write("c.yaml", class("a.io/c"))
	r.problems("spec.controllerName: Invalid value: \"a.io/c\": Value is immutable")
	if got := r.object("GatewayClass/c").(*gatewayv1.GatewayClass).Spec.ControllerName; got != "a.io/b" {
		t.Errorf("controllerName %s, want the one that was there", got)
	}
}

func TestAFileThatHoldsNoManifestIsNamedOnceAndQuietly(t *testing.T) {
	r := newRig(t)
	r.write("values.yaml", "replicas: 1\n", "image: {}\n")
	r.write("a.yaml", configMap("a", "1"), "stray: true\n")
	r.start()
	r.want("ConfigMap/default/a")
	r.problems("Refused a.yaml document 2: apiVersion: is required",
		"Ignored values.yaml: holds no manifest: nothing in it has an apiVersion or a kind")
	r.write("b.yaml", configMap("b", "1"))
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
	r.write("b.yaml", "metadata: {name: b}\n") // it held an object: its first lines were lost
	r.problems("a.yaml", "Warning b.yaml ConfigMap/default/b: stays in effect", "Refused b.yaml document 1: apiVersion: is required", "values.yaml")
	r.restart()
	r.problems("a.yaml", "Warning b.yaml ConfigMap/default/b: stays in effect", "Refused b.yaml document 1: apiVersion: is required", "values.yaml")
	r.want("ConfigMap/default/a", "ConfigMap/default/b")
}
