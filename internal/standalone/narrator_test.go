package standalone

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"aether.io/aether/internal/child"
	"aether.io/aether/internal/inspect"
)

// told is what a narrator has told, without the times.
func told(n *narrator, out *bytes.Buffer) []string {
	n.flush(time.Time{})
	var list []string
	for l := range strings.Lines(out.String()) {
		_, text, _ := strings.Cut(strings.TrimSpace(l), "  ")
		list = append(list, text)
	}
	out.Reset()
	return list
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestPortsAreToldWheneverTheyDiffer(t *testing.T) {
	var out bytes.Buffer
	n := newNarrator(Config{Bind: "127.0.0.1", Out: &out})
	now := time.Now()
	n.tellPorts(now, []uint32{8080})
	expect(t, "a port is bound", told(n, &out), "listening on 127.0.0.1:8080")
	n.tellPorts(now, []uint32{8080})
	expect(t, "nothing differs", told(n, &out))
	n.tellPorts(now, []uint32{8080, 8443})
	expect(t, "one more", told(n, &out), "listening on 127.0.0.1:8443")
	n.tellPorts(now, []uint32{8443})
	expect(t, "one less", told(n, &out), "no longer listening on 127.0.0.1:8080")
	n.tellPorts(now, nil)
	expect(t, "none is left", told(n, &out), "no longer listening on 127.0.0.1:8443", noListener)
}

func TestWhatHappenedFirstIsToldFirst(t *testing.T) {
	var out bytes.Buffer
	n := newNarrator(Config{Out: &out})
	now := time.Now()
	for _, e := range []inspect.Event{{At: now.Add(2), Message: "second"}, {At: now.Add(2), Message: "third"}, {At: now, Message: "first"}} {
		n.tell("proxy", e)
	}
	n.flush(now.Add(1))
	if got := strings.Count(out.String(), "\n"); got != 1 {
		t.Errorf("%d lines, want the one that is old enough", got)
	}
	expect(t, "in order", told(n, &out), "first", "second", "third")
}

func TestAControllerThatEndedIsToldToBeBack(t *testing.T) {
	var out bytes.Buffer
	n := newNarrator(Config{State: state(t), Out: &out})
	ready := inspect.Event{At: time.Now(), Kind: "ca-ready", Message: "CA ready"}
	n.tell("controller", ready)
	n.lastWords("controller", child.Exit{State: "signal: killed", Signaled: true, InARow: 1}, 0)
	ready.At = time.Now()
	n.tell("controller", ready)
	expect(t, "it", told(n, &out), "CA ready", "! controller was ended (signal: killed); it is started again", "the controller is back")
}

func TestAnEndThatWasAskedForIsNotTold(t *testing.T) {
	var out bytes.Buffer
	n := newNarrator(Config{State: state(t), Out: &out})
	n.started("proxy", 7)
	n.asked["proxy"] = 7
	n.lastWords("proxy", child.Exit{State: "exit status 0", InARow: 1}, 0)
	expect(t, "the one", told(n, &out))
	n.started("proxy", 8)
	n.lastWords("proxy", child.Exit{State: "signal: killed", Signaled: true, InARow: 1}, 0)
	expect(t, "the next", told(n, &out), "! proxy was ended (signal: killed); it is started again")
}
