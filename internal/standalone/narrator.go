package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"aether.io/aether/internal/child"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/journal"
)

// narrator tells a person, or a program, what happens: what the processes' journals
// say, whose status turns bad, and when the instance is ready.
type narrator struct {
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

	look chan struct{} // capacity 1: statuses may have changed; taken by watch
}

func newNarrator(c Config) *narrator {
	return &narrator{c: c, began: time.Now(), troubles: newTroubles(), away: map[string]bool{}, asked: map[string]int{}, starts: map[string]int{}, pids: map[string]int{}, ended: map[string]time.Time{}, look: make(chan struct{}, 1)}
}

// line is one line of JSON output.
type line struct {
	At      time.Time       `json:"at"`
	Process string          `json:"process,omitempty"`
	Kind    string          `json:"kind"`
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// follow tells the events of one process, over its restarts, until ctx is done.
func (n *narrator) follow(ctx context.Context, process, socket string) error {
	client := inspect.NewClient(socket)
	defer client.Close()
	var since uint64
	run := 0
	// Exits: ctx is done.
	for {
		if now := n.run(process); now != run {
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

// started notes that a process was started.
func (n *narrator) started(process string, pid int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.starts[process]++
	n.pids[process] = pid
}

// run is how often a process was started.
func (n *narrator) run(process string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.starts[process]
}

func (n *narrator) tell(process string, e inspect.Event) {
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

// say tells something of the supervisor's own.
func (n *narrator) say(kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print(line{At: time.Now(), Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// inOrder is how long a line is held back for those of other processes that are older, and
// come later: each process's journal waits for company before it tells anything.
const inOrder = 60 * time.Millisecond

// print has one line written in the order of time. The caller holds mu.
func (n *narrator) print(l line) {
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
func (n *narrator) flush(before time.Time) {
	for len(n.held) > 0 && (before.IsZero() || n.held[0].At.Before(before)) {
		n.write(n.held[0])
		n.held = n.held[1:]
	}
}

// narrate writes lines until ctx is done, and then all that is still held.
func (n *narrator) narrate(ctx context.Context) {
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
func (n *narrator) write(l line) {
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
		fmt.Fprintf(n.c.Out, "%s  %s\n", l.At.Local().Format("15:04:05.000"), OneLine(l.Message))
		return
	}
	fmt.Fprintf(n.c.Out, "%7.3fs  %s\n", l.At.Sub(n.began).Seconds(), OneLine(l.Message))
}

// endTold is how often the end of a process is told that ends again and again, but for the
// first few times.
const endTold = time.Minute

// lastWords tells that a process ended by itself, and what it said last, which is often why.
// from is where in its log this run of it began. One that ends again and again is told of
// after 1, 2, 4, 8 and so on times, and once a minute.
func (n *narrator) lastWords(process string, e child.Exit, from int64) {
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
		s = fmt.Sprintf("%s ended with %s and said last: %s (%s)", process, e.State, or(words, "nothing"), path)
		if process == "envoy" && e.State == "exit status 0" {
			s += ", which Envoy does not do by itself: is it one?"
		}
	}
	if e.InARow == 1 {
		return s + "; it is started again"
	}
	return s + fmt.Sprintf("; %d times in a row, tried again in %s", e.InARow, e.Wait)
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
