package memory

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"aether.io/aether/internal/atomicfile"
	"aether.io/aether/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var when = time.Unix(1_700_000_000, 0).UTC()

func TestAPositionIsClaimedBeforeItIsUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	var last uint64
	for range 3 { // each is killed without any farewell
		p, lost, err := OpenPosition(path, when)
		if err != nil || lost != nil {
			t.Fatal(err, lost)
		}
		for range 5 {
			at := p.Advance(object.Gateway)
			if at <= last {
				t.Fatalf("position %d after %d", at, last)
			}
			last = at
		}
		if got := p.Mark().Positions["Gateway"]; got != last || p.Mark().Positions["Secret"] == 0 {
			t.Errorf("mark %v, want Gateway at %d and every kind somewhere", p.Mark(), last)
		}
	}
}

func TestACeilingIsRaisedWhenItIsReached(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	p, _, err := OpenPosition(path, when)
	if err != nil {
		t.Fatal(err)
	}
	p.next = p.Ceiling
	at := p.Advance(object.Gateway)
	if again, _, err := OpenPosition(path, when); err != nil || again.next <= at {
		t.Errorf("after a kill at %d it goes on at %d, %v", at, again.next, err)
	}
}

// full is a disk with no room, until it has some.
type full struct {
	room bool
	at   time.Time
}

func (d *full) open(path string, now time.Time) (p *Position, lost, err error) {
	p = &Position{path: path, now: func() time.Time { return d.at }, write: func(path string, data []byte, mode os.FileMode) error {
		if !d.room {
			return syscall.ENOSPC
		}
		return atomicfile.Write(path, data, mode)
	}}
	return p.open(now)
}

func TestWhereNothingCanBeClaimedThePositionStandsStill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	before, _, err := OpenPosition(path, when)
	if err != nil {
		t.Fatal(err)
	}
	before.next = before.Ceiling // as far as any proxy can have seen
	before.mark.Positions["Gateway"] = before.next
	disk := &full{at: when}
	p, lost, err := disk.open(path, when.Add(time.Hour))
	if err != nil || lost != nil {
		t.Fatal(err, lost)
	}
	if !errors.Is(p.Fault(), syscall.ENOSPC) || !p.Retry().After(when) {
		t.Errorf("fault %v, tried again at %v", p.Fault(), p.Retry())
	}
	still := p.Mark()
	for range 3 {
		if at := p.Advance(object.Gateway); at != before.Ceiling {
			t.Errorf("position %d, want that of the last claim, %d", at, before.Ceiling)
		}
	}
	if p.Mark().Behind(before.Mark()) || p.Mark().Behind(still) || still.Behind(p.Mark()) {
		t.Errorf("mark %v, then %v, where proxies have seen %v", still, p.Mark(), before.Mark())
	}
	if next, _, err := OpenPosition(path, when); err != nil || next.Mark().Behind(p.Mark()) {
		t.Errorf("whoever starts next is at %v, behind %v, %v", next.Mark(), p.Mark(), err)
	}
	disk.room = true
	if at := p.Advance(object.Gateway); at != before.Ceiling {
		t.Errorf("position %d: it was tried again at once", at)
	}
	disk.at = disk.at.Add(time.Minute)
	at := p.Advance(object.Gateway)
	if p.Fault() != nil || at <= before.Ceiling {
		t.Errorf("position %d after %d, %v, though there is room", at, before.Ceiling, p.Fault())
	}
	if next, _, err := OpenPosition(path, when); err != nil || next.next <= at {
		t.Errorf("after a kill at %d it goes on at %d, %v", at, next.next, err)
	}
}

func TestAClaimThatIsGoneIsWrittenAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "source", "position.json")
	disk := &full{at: when, room: true}
	p, _, err := disk.open(path, when)
	if err != nil {
		t.Fatal(err)
	}
	at := p.Advance(object.Gateway)
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	disk.room = false
	p.Rewrite()
	if p.Fault() == nil || p.Retry().IsZero() {
		t.Error("that it is not on disk is not told")
	}
	disk.room, disk.at = true, disk.at.Add(time.Minute)
	if p.Claim(); p.Fault() != nil {
		t.Errorf("still wrong: %v", p.Fault())
	}
	if next, lost, err := disk.open(path, when); err != nil || lost != nil || next.Epoch != p.Epoch || next.next <= at {
		t.Errorf("the next start is at %v after %d, %v, %v", next.Mark(), at, lost, err)
	}
}

func TestAnEpochThatIsNotOnDiskIsNeverGoneBelow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	disk := &full{at: when}
	var last *Position
	for i := range 3 { // the first start of all, then restarts; at the end there is room
		disk.room = i == 2
		p, lost, err := disk.open(path, when.Add(time.Duration(i)*time.Second))
		if err != nil || lost != nil {
			t.Fatal(err, lost)
		}
		if last != nil && p.Mark().Behind(last.Mark()) {
			t.Errorf("start %d is at %v, behind %v", i, p.Mark(), last.Mark())
		}
		p.Advance(object.Gateway)
		last = p
	}
	p, _, err := disk.open(path, when)
	if err != nil || p.Mark().Behind(last.Mark()) {
		t.Errorf("once on disk it goes on at %v, behind %v, %v", p.Mark(), last.Mark(), err)
	}
}

func TestARecordThatCanNeitherBeReadNorReplacedIsNotSafe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	if err := os.MkdirAll(filepath.Join(path, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, _, err := OpenPosition(path, when); !errors.Is(err, ErrUnsafe) {
		t.Errorf("got %v, want that it is not safe", err)
	}
}

func TestALostPositionBeginsAHigherEpoch(t *testing.T) {
	path := filepath.Join(t.TempDir(), "position.json")
	first, _, err := OpenPosition(path, when)
	if err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "{", "null", `{"epoch":0}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		p, lost, err := OpenPosition(path, when.Add(time.Second))
		if err != nil || lost == nil || p.Epoch <= first.Epoch {
			t.Errorf("position %q: epoch %d after %d, lost %v, %v", content, p.Epoch, first.Epoch, lost, err)
		}
	}
}

func TestTheJournalRemembers(t *testing.T) {
	dir := t.TempDir()
	journal := filepath.Join(dir, "objects.jsonl")
	key := func(i int) object.Key {
		return object.Key{Kind: object.Secret, Namespace: "default", Name: fmt.Sprint("s", i)}
	}
	run := func(work func(k *Keeper)) map[object.Key]*Record {
		t.Helper()
		records, lines, bad, err := ReadRecords(journal)
		if err != nil || bad > 0 {
			t.Fatal(bad, err)
		}
		k := NewKeeper(KeeperConfig{Journal: journal, Copies: dir, Records: records, Lines: lines})
		go k.Run()
		work(k)
		k.Close()
		records, _, bad, err = ReadRecords(journal)
		if err != nil || bad > 0 {
			t.Fatal(bad, err)
		}
		return records
	}
	want := map[object.Key]*Record{}
	got := run(func(k *Keeper) {
		for i := range 10 {
			r := &Record{Key: key(i).String()}
			r.Update(sha256.Sum256([]byte{1}), when)
			r.Update(sha256.Sum256([]byte{byte(i)}), when)
			want[key(i)] = r
			k.KeepRecord(key(i), *r)
		}
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if want[key(1)].Generation != 1 || want[key(2)].Generation != 2 {
		t.Errorf("generations %v, want 1 for the same content and 2 for another", want)
	}
	got = run(func(k *Keeper) {
		k.KeepRecord(key(3), Record{Key: key(3).String(), Gone: true})
		delete(want, key(3))
	})
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	data, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(journal, bytes.Repeat(data, 200), 0o600); err != nil { // mostly history
		t.Fatal(err)
	}
	got = run(func(k *Keeper) { k.KeepRecord(key(4), *want[key(4)]) })
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if data, err = os.ReadFile(journal); err != nil || bytes.Count(data, []byte("\n")) != len(got) {
		t.Errorf("the journal has %d lines for %d objects, %v", bytes.Count(data, []byte("\n")), len(got), err)
	}
}

func TestUIDsDifferByNameAndAge(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range []Record{{Key: "Secret/a/b", Created: when}, {Key: "Secret/a/c", Created: when}, {Key: "Secret/a/b", Created: when.Add(1)}} {
		uid := string(r.UID())
		if seen[uid] || len(uid) != 36 || uid[14] != '8' {
			t.Errorf("uid %s of %v", uid, r)
		}
		seen[uid] = true
	}
}

func TestCopiesComeBack(t *testing.T) {
	dir := t.TempDir()
	keep := func(work func(k *Keeper)) {
		k := NewKeeper(KeeperConfig{Journal: filepath.Join(dir, "j"), Copies: filepath.Join(dir, "copies")})
		go k.Run()
		work(k)
		k.Close()
	}
	keep(func(k *Keeper) {
		k.KeepFile("a/b.yaml", [][]byte{[]byte("{\n\"a\": 1}"), []byte(`{"b":"é\n"}`)})
		k.KeepFile("c.yaml", [][]byte{[]byte("{}")})
		k.KeepFile("d.yaml", [][]byte{[]byte("{}")})
	})
	if err := os.WriteFile(filepath.Join(dir, "copies", "another.json"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	keep(func(k *Keeper) {
		k.KeepFile("c.yaml", nil)
		k.KeepFile("never.yaml", nil)
		k.KeepOnly([]string{"a/b.yaml", "c.yaml"})
		k.KeepFile("e.yaml", [][]byte{[]byte("[]")}) // it came after that
	})
	if _, err := os.Stat(filepath.Join(dir, "copies", "another.json")); err != nil {
		t.Errorf("what is no copy was removed: %v", err)
	}
	copies, err := ReadCopies(filepath.Join(dir, "copies"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{"a/b.yaml": []byte("{\"a\":1}\n{\"b\":\"é\\n\"}\n"), "e.yaml": []byte("[]\n")}
	if d := cmp.Diff(want, copies); d != "" {
		t.Error(d)
	}
	if got, err := ReadCopy(filepath.Join(dir, "copies"), "a/b.yaml"); err != nil || string(got) != string(want["a/b.yaml"]) {
		t.Errorf("copy %q, %v", got, err)
	}
	if _, err := ReadCopy(filepath.Join(dir, "copies"), "c.yaml"); err == nil {
		t.Error("the copy of c.yaml is still there")
	}
}

func TestWhatCannotBeWrittenIsToldAndWrittenLater(t *testing.T) {
	dir := t.TempDir()
	journal, copies := filepath.Join(dir, "source", "objects.jsonl"), filepath.Join(dir, "copies")
	for _, inTheWay := range []string{filepath.Join(dir, "source"), copies} {
		if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := NewKeeper(KeeperConfig{Journal: journal, Copies: copies})
	go k.Run()
	defer k.Close()
	key := object.Key{Kind: object.Secret, Namespace: "default", Name: "s"}
	k.KeepRecord(key, Record{Key: key.String(), Generation: 3, Content: "c"})
	k.KeepFile("a.yaml", [][]byte{[]byte(`{}`)})
	k.Notify()
	news := func(what string) {
		t.Helper()
		select {
		case <-k.News():
		case <-time.After(20 * time.Second):
			t.Fatalf("%s is not told of", what)
		}
	}
	news("a disk that takes nothing")
	if err := k.Fault(); err == nil || !strings.Contains(err.Error(), "a.yaml") && !strings.Contains(err.Error(), "objects.jsonl") {
		t.Errorf("fault %v does not say what is not written", err)
	}
	for _, inTheWay := range []string{filepath.Join(dir, "source"), copies} {
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
	}
	news("that all is written again")
	if err := k.Fault(); err != nil {
		t.Error(err)
	}
	records, _, bad, err := ReadRecords(journal)
	if err != nil || bad > 0 || records[key] == nil || records[key].Generation != 3 {
		t.Errorf("records %v, %d bad, %v", records, bad, err)
	}
	if got, err := ReadCopy(copies, "a.yaml"); err != nil || string(got) != "{}\n" {
		t.Errorf("copy %q, %v", got, err)
	}
}
