package build

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// meter reads what `go build -v` writes, one package a line as each begins, and says now
// and then how many those are.
type meter struct {
	out   io.Writer
	name  string
	total int
	done  chan struct{}
	ended chan struct{}

	mu      sync.Mutex // of all below
	begun   int
	partial []byte   // of a line
	other   []string // lines that name no package
}

// newMeter starts to report to out; total is how many packages are to be expected.
func newMeter(out io.Writer, name string, total int) *meter {
	m := &meter{out: out, name: name, total: total, done: make(chan struct{}), ended: make(chan struct{})}
	fmt.Fprintf(out, "building %s: %d packages, once for this version\n", name, total)
	go m.report(time.Now())
	return m
}

func (m *meter) report(start time.Time) {
	defer close(m.ended)
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.done:
			fmt.Fprintf(m.out, "building %s: ended after %s\n", m.name, time.Since(start).Round(time.Second))
			return
		case <-tick.C:
			m.mu.Lock()
			begun := m.begun
			m.mu.Unlock()
			fmt.Fprintf(m.out, "building %s: %d of %d packages, %s\n", m.name, begun, m.total, time.Since(start).Round(time.Second))
		}
	}
}

// stop ends the reports; nothing is written to out after it.
func (m *meter) stop() {
	close(m.done)
	<-m.ended
}

// Write takes the go command's output.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.partial = append(m.partial, p...)
	for {
		line, rest, ok := bytes.Cut(m.partial, []byte("\n"))
		if !ok {
			return len(p), nil
		}
		if text := string(line); text == "" || strings.ContainsAny(text, " \t#") {
			m.other = append(m.other, text)
		} else {
			m.begun++
		}
		m.partial = rest
	}
}

// complaints is what the go command said besides the names of packages.
func (m *meter) complaints() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(append(m.other, string(m.partial)), "\n")
}
