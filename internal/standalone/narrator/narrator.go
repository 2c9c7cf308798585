// Package narrator tells a person, or a program, what happens in an instance: what the
// processes' journals say, what its supervisor says of itself, whose status turns bad, and
// when the instance is ready. It starts and ends no process and makes no file: its
// supervisor calls it, it asks the processes on their sockets and looks into their logs, and
// lines go to an output.
package narrator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/child"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
	"aether.io/aether/internal/standalone/view"
	"aether.io/aether/internal/statedir"
)

// Config is what a Narrator is made from.
type Config struct {
	Dir        string       // of manifests
	State      statedir.Dir // where the sockets and the logs of the processes are
	Bind       string       // IP that listeners bind
	PortOffset int          // that was added to each listener's port
	Out        io.Writer    // what is told; one write for each line
	JSON       bool         // one JSON object a line instead of prose
}

// Narrator tells of one instance.
type Narrator struct {
	c     Config
	began time.Time

	mu       sync.Mutex // lines do not mix
	ready    bool       // changes are told only from then on: before, they are the start
	troubles *troubles
	ports    []uint32             // that were told to be bound, sorted
	held     []line               // not written yet, oldest first
	away     map[string]bool      // processes whose end was told, and not yet that they are back
	asked    map[string]int       // the pids of processes that were asked to end
	starts   map[string]int       // of each process
	pids     map[string]int       // of each process, as it was started last
	ended    map[string]time.Time // when the end of each process was told last

	look chan struct{} // capacity 1: statuses may have changed; taken by Watch
}

// New makes a Narrator whose instance starts now.
func New(c Config) *Narrator {
	return &Narrator{c: c, began: time.Now(), troubles: newTroubles(), away: map[string]bool{}, asked: map[string]int{}, starts: map[string]int{}, pids: map[string]int{}, ended: map[string]time.Time{}, look: make(chan struct{}, 1)}
}

// line is one line of JSON output.
type line struct {
	At      time.Time       `json:"at"`
	Process string          `json:"process,omitempty"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// Follow tells the events of one process, over its restarts, until ctx is done.
func (n *Narrator) Follow(ctx context.Context, process, socket string) error {
	client := inspect.NewClient(socket)
	defer client.Close()
	var since uint64
	run := 0
	// Exits: ctx is done.
	for {
		if now := n.startsOf(process); now != run {
			run, since = now, 0 // a new process counts its events anew
		}
		_ = client.Follow(ctx, since, func(e inspect.Event) { // it ends with the process, which is told by the supervisor's log
			since = e.Seq
			n.tell(process, e)
		})
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Started notes that a process was started.
func (n *Narrator) Started(process string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.starts[process]++
	n.pids[process] = pid
}

// Expect notes that the process that has pid was asked to end, which was told: that it
// ends is not.
func (n *Narrator) Expect(process string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked[process] = pid
}

// startsOf is how often a process was started.
func (n *Narrator) startsOf(process string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.starts[process]
}

func (n *Narrator) tell(process string, e inspect.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if journal.Kind(e.Kind) == journal.Change {
		n.lookAtStatuses()
		if !n.ready {
			return
		}
	}
	l := line{At: e.At, Process: process, Kind: e.Kind, Message: e.Message, Detail: e.Detail}
	if !n.c.JSON {
		l.Message = prose(e)
	}
	if journal.Kind(e.Kind) == journal.CAReady && process == "controller" && n.away[process] {
		delete(n.away, process)
		l.Message = "the controller is back"
	}
	n.print(l)
}

// Say tells something of the supervisor's own.
func (n *Narrator) Say(kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print(line{At: time.Now(), Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// inOrder is how long a line is held back for those of other processes that are older, and
// come later: each process's journal waits for company before it tells anything.
const inOrder = 60 * time.Millisecond

// print has one line written in the order of time. The caller holds mu.
func (n *Narrator) print(l line) {
	at, _ := slices.BinarySearchFunc(n.held, l.At, func(held line, at time.Time) int {
		if held.At.After(at) {
			return 1
		}
		return -1 // also of the same moment: it came first
	})
	n.held = slices.Insert(n.held, at, l)
}

// flush writes the lines that are held and were before a moment; the zero time means all of
// them. The caller holds mu.
func (n *Narrator) flush(before time.Time) {
	for len(n.held) > 0 && (before.IsZero() || n.held[0].At.Before(before)) {
		n.write(n.held[0])
		n.held = n.held[1:]
	}
}

// Run writes lines until ctx is done, and then all that is still held.
func (n *Narrator) Run(ctx context.Context) {
	tick := time.NewTicker(inOrder / 3)
	defer tick.Stop()
	// Exits: ctx is done.
	for {
		select {
		case <-ctx.Done():
			n.mu.Lock()
			n.flush(time.Time{})
			n.mu.Unlock()
			return
		case <-tick.C:
		}
		n.mu.Lock()
		n.flush(time.Now().Add(-inOrder))
		n.mu.Unlock()
	}
}

// write writes one line. The caller holds mu.
func (n *Narrator) write(l line) {
	if n.c.JSON {
		l.Message = strings.TrimPrefix(l.Message, "! ")
		data, err := json.Marshal(l)
		if err != nil {
			return
		}
		fmt.Fprintf(n.c.Out, "%s\n", data)
		return
	}
	if n.ready {
		fmt.Fprintf(n.c.Out, "%s  %s\n", l.At.Local().Format("15:04:05.000"), view.OneLine(l.Message))
		return
	}
	fmt.Fprintf(n.c.Out, "%7.3fs  %s\n", l.At.Sub(n.began).Seconds(), view.OneLine(l.Message))
}

// endTold is how often the end of a process is told that ends again and again, but for the
// first few times.
const endTold = time.Minute

// Ended tells that a process ended by itself, and what it said last, which is often why.
// from is where in its log this run of it began. One that ends again and again is told of
// after 1, 2, 4, 8 and so on times, and once a minute.
func (n *Narrator) Ended(process string, e child.Exit, from int64) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.away[process] = true
	if pid := n.asked[process]; pid > 0 && pid == n.pids[process] { // by us, which was told
		return
	}
	if bits.OnesCount(uint(e.InARow)) > 1 && now.Sub(n.ended[process]) < endTold {
		return
	}
	n.ended[process] = now
	path := n.c.State.Log(process)
	n.print(line{At: now, Kind: "process-ended", Process: process, Message: "! " + endProse(process, e, lastLine(path, from), path)})
}

// endProse is the end of a process as a person reads it.
func endProse(process string, e child.Exit, words, path string) string {
	var s string
	switch {
	case e.Err != nil:
		s = fmt.Sprintf("%s cannot be started: %v", process, e.Err)
	case e.Signaled:
		s = fmt.Sprintf("%s was ended (%s)", process, e.State)
	default:
		s = fmt.Sprintf("%s ended with %s and said last: %s (%s)", process, e.State, cmp.Or(words, "nothing"), path)
		if process == "envoy" && e.State == "exit status 0" {
			s += ", which Envoy does not do by itself: is it one?"
		}
	}
	if e.InARow == 1 {
		return s + "; it is started again"
	}
	return s + fmt.Sprintf("; %d times in a row, tried again in %s", e.InARow, e.Wait)
}

// LastWords is what a process said last in a run that began at an offset of its log.
func (n *Narrator) LastWords(process string, from int64) string {
	path := n.c.State.Log(process)
	return fmt.Sprintf("%s (%s)", cmp.Or(lastLine(path, from), "it said nothing"), path)
}

// lastLine is the last line of a file that is not empty, from an offset on.
func lastLine(path string, from int64) string {
	const most = 4096
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	from = max(from, info.Size()-most)
	text := make([]byte, max(0, info.Size()-from))
	read, _ := f.ReadAt(text, from) // what there is
	lines := strings.Split(strings.TrimSpace(string(text[:read])), "\n")
	last := strings.TrimSpace(lines[len(lines)-1])
	return last[:min(400, len(last))]
}
