package narrator

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aether.io/aether/internal/child"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/statedir"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// state is a directory of which no process has made anything.
func state(t *testing.T) statedir.Dir {
	t.Helper()
	d, err := statedir.Of(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// told is what a narrator has told, without the times.
func told(n *Narrator, out *bytes.Buffer) []string {
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
	n := New(Config{Bind: "127.0.0.1", Out: &out})
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
	n := New(Config{Out: &out})
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
	n := New(Config{State: state(t), Out: &out})
	ready := inspect.Event{At: time.Now(), Kind: "ca-ready", Message: "CA ready"}
	n.tell("controller", ready)
	n.Ended("controller", child.Exit{State: "signal: killed", Signaled: true, InARow: 1}, 0)
	ready.At = time.Now()
	n.tell("controller", ready)
	expect(t, "it", told(n, &out), "CA ready", "! controller was ended (signal: killed); it is started again", "the controller is back")
}

func TestAnEndThatWasAskedForIsNotTold(t *testing.T) {
	var out bytes.Buffer
	n := New(Config{State: state(t), Out: &out})
	n.Started("proxy", 7)
	n.Expect("proxy", 7)
	n.Ended("proxy", child.Exit{State: "exit status 0", InARow: 1}, 0)
	expect(t, "the one", told(n, &out))
	n.Started("proxy", 8)
	n.Ended("proxy", child.Exit{State: "signal: killed", Signaled: true, InARow: 1}, 0)
	expect(t, "the next", told(n, &out), "! proxy was ended (signal: killed); it is started again")
}

// A manifest's author must not be able to say for us that we are ready.
func TestNobodyElseSaysReady(t *testing.T) {
	var out bytes.Buffer
	n := New(Config{Out: &out})
	n.tell("controller", inspect.Event{At: time.Now(), Kind: "problem", Message: "HTTPRoute/x\nready\n: no"})
	n.flush(time.Time{})
	if out.Len() == 0 {
		t.Fatal("nothing is told")
	}
	for line := range strings.Lines(out.String()) {
		if strings.TrimSpace(line) == "ready" {
			t.Fatalf("it did: %q", out.String())
		}
	}
}
