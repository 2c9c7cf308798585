package lastgood

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/object"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/watermark"
)

func res(name, content string) *resource.Resource {
	return &resource.Resource{
		Name: resource.Name{TypeURL: "type.googleapis.com/x.Y", Name: name}, Hash: resource.Hash([]byte(fmt.Sprintf("%-32s", content))),
		Payload: []byte(content), Origin: []object.Key{{Kind: object.Service, Namespace: "ns", Name: name}},
	}
}

func record(version string, mark uint64, rs ...*resource.Resource) Record {
	return Record{
		Version: version, Mark: watermark.Mark{Epoch: 1, Positions: map[string]uint64{"Service": mark}}, Resources: rs,
	}
}

// steps are a first state and changes of it of every sort.
func steps() []Record {
	refused := record("v2", 2, res("b", "2"))
	refused.Refused = []resource.Refusal{{Name: res("b", "").Name, Hash: res("b", "2").Hash, Detail: "no"}}
	refused.Fallback = []*resource.Resource{res("b", "1")}
	removed := record("v3", 3)
	removed.Removed = []resource.Name{res("a", "").Name}
	return []Record{record("v1", 1, res("a", "1"), res("b", "1"), res("c", "1")), refused, removed, record("v4", 4, res("b", "3"))}
}

// images are where the first n of the steps lead.
func images() []*Image {
	out := []*Image{NewImage()}
	for n := range steps() {
		im := NewImage()
		for _, r := range steps()[:n+1] {
			im.Apply(r)
		}
		out = append(out, im)
	}
	return out
}

func write(t *testing.T, dir string, rs []Record) {
	t.Helper()
	s, im, lost, err := Open(dir)
	if err != nil || lost != 0 {
		t.Fatal(lost, err)
	}
	for _, r := range rs {
		im.Apply(r)
		if err := s.Append(r, im); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir string) (*Image, int64) {
	t.Helper()
	s, im, lost, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return im, lost
}

func TestStoreReadsWhatWasWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	write(t, dir, steps())
	im, lost := read(t, dir)
	if diff := cmp.Diff(images()[4], im); diff != "" || lost != 0 {
		t.Errorf("lost %d; (-want +got)\n%s", lost, diff)
	}
	for path, want := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, fileName): 0o600} {
		if fi, err := os.Stat(path); err != nil || fi.Mode() != want {
			t.Errorf("%s has mode %v, want %v (%v)", path, fi.Mode(), want, err)
		}
	}
}

// TestTornAtEveryByte: a process that was killed while it wrote leaves the states
// before, and goes on from there.
func TestTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, steps())
	path := filepath.Join(dir, fileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64
	for i := range steps() {
		d := t.TempDir()
		write(t, d, steps()[:i+1])
		fi, err := os.Stat(filepath.Join(d, fileName))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, fi.Size())
	}
	for cut := range int64(len(whole)) {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		intact := 0
		for intact < len(ends) && ends[intact] <= cut {
			intact++
		}
		im, lost := read(t, dir)
		if diff := cmp.Diff(images()[intact], im); diff != "" {
			t.Fatalf("cut at %d (-want +got)\n%s", cut, diff)
		}
		want := cut
		if intact > 0 {
			want -= ends[intact-1]
		}
		if lost != want {
			t.Fatalf("cut at %d: %d bytes lost, want %d", cut, lost, want)
		}
		write(t, dir, steps()[intact:])
		if im, _ := read(t, dir); !cmp.Equal(images()[4], im) {
			t.Fatalf("cut at %d: what was appended after it is not read", cut)
		}
	}
}

// TestDamagedAtEveryByte: whatever byte changes, what is read is a state that there was.
func TestDamagedAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, steps())
	path := filepath.Join(dir, fileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for _, flip := range []byte{1 << (i % 8)} {
			damaged := append([]byte(nil), whole...)
			damaged[i] ^= flip
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			im, lost := read(t, dir)
			known := false
			for _, want := range images()[:4] {
				known = known || cmp.Equal(want, im)
			}
			if !known || lost == 0 {
				t.Fatalf("byte %d ^ %#x: lost %d, read %+v", i, flip, lost, im)
			}
		}
	}
}

func TestFileStaysInProportion(t *testing.T) {
	dir := t.TempDir()
	s, im, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	big := make([]byte, 100<<10)
	var most int64
	for i := range 200 {
		r := record(fmt.Sprint(i), uint64(i), res("a", string(big)), res(fmt.Sprint("n", i%7), fmt.Sprint(i)))
		im.Apply(r)
		if err := s.Append(r, im); err != nil {
			t.Fatal(err)
		}
		most = max(most, s.Size())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if most > 2*slack {
		t.Errorf("grew to %d bytes", most)
	}
	got, lost := read(t, dir)
	if diff := cmp.Diff(im, got); diff != "" || lost != 0 {
		t.Errorf("lost %d; (-want +got)\n%s", lost, diff)
	}
}

func TestStepThatCouldNotBeWrittenIsMadeUpFor(t *testing.T) {
	dir := t.TempDir()
	s, im, _, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil { // as good as a full disk
		t.Fatal(err)
	}
	for i, r := range steps() {
		im.Apply(r)
		if err := s.Append(r, im); (err != nil) != (i == 0 || i == 1) {
			t.Fatalf("step %d: %v", i, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, _ := read(t, dir); !cmp.Equal(images()[4], got) {
		t.Error("read another state than the last")
	}
}

func FuzzReplay(f *testing.F) {
	dir := f.TempDir()
	s, im, _, err := Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	for _, r := range steps() {
		im.Apply(r)
		if err := s.Append(r, im); err != nil {
			f.Fatal(err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		im, good, base := replay(data)
		if im == nil || good < base || good > int64(len(data)) {
			t.Errorf("image %v, intact %d, base %d of %d", im, good, base, len(data))
		}
	})
}
