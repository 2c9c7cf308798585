package standalone

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

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
	last     map[string]string // words of each process that ended

	look chan struct{} // capacity 1: statuses may have changed; taken by watch
}

func newNarrator(c Config) *narrator {
	return &narrator{c: c, began: time.Now(), troubles: newTroubles(), last: map[string]string{}, look: make(chan struct{}, 1)}
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
	lastPID := ""
	// Exits: ctx is done.
	for {
		pid, _ := os.ReadFile(n.c.State.PIDFile(process)) // absent while it restarts
		if string(pid) != lastPID {
			lastPID, since = string(pid), 0
			n.restarted(process)
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

// restarted forgets what a new controller says anew.
func (n *narrator) restarted(process string) {
	if process != "controller" {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.troubles.forgetObjects()
}

func (n *narrator) tell(process string, e inspect.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if journal.Kind(e.Kind) == journal.Change {
		n.troubles.changed(changedObjects(e))
		n.lookAtStatuses()
		if !n.ready {
			return
		}
	}
	l := line{At: e.At, Process: process, Kind: e.Kind, Message: e.Message, Detail: e.Detail}
	if !n.c.JSON {
		l.Message = prose(e)
	}
	n.print(l)
}

// say tells something of the supervisor's own.
func (n *narrator) say(kind, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.print(line{At: time.Now(), Kind: kind, Message: fmt.Sprintf(format, args...)})
}

// print writes one line. The caller holds mu.
func (n *narrator) print(l line) {
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

// lastWords tells what a process that ended by itself said last, which is often why. What
// it repeats is told once.
func (n *narrator) lastWords(process, state string, from int64) {
	if strings.HasPrefix(state, "signal:") {
		return // it was not its own doing
	}
	path := n.c.State.Log(process)
	words := or(lastLine(path, from), "nothing")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.last[process] == words {
		return
	}
	n.last[process] = words
	n.print(line{At: time.Now(), Kind: "process-ended", Message: fmt.Sprintf("! %s ended with %s and said last: %s (%s)", process, state, words, path)})
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
