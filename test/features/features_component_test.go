//go:build component

// Package features_test runs every example of examples/features against the product, in
// both ways to cut routes into scopes, which must agree.
package features_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/test/echo"
	"aether.io/aether/internal/test/instance"
	"aether.io/aether/test/features/example"
	"aether.io/aether/test/features/probe"
	"aether.io/aether/test/features/stage"
)

var (
	folder   = flag.String("examples", "../../examples/features", "the examples to run")
	binaries string // directory of the built commands
	envoy    string
)

func TestMain(m *testing.M) {
	flag.Parse()
	envoy = os.Getenv("AETHER_ENVOY")
	os.Exit(instance.WithPrograms(envoy, func(programs string) int {
		binaries = programs
		return m.Run()
	}))
}

func TestExamplesDoWhatTheySayInBothModes(t *testing.T) {
	all, err := example.ReadAll(*folder)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no examples in %s", *folder)
	}
	modes := []*mode{startMode(t, "Single"), startMode(t, "PerHost")}
	for _, e := range all {
		t.Run(e.Name, func(t *testing.T) {
			x := prepare(t, e)
			var transcripts [][]record
			for _, m := range modes {
				t.Run(m.scopes, func(t *testing.T) {
					transcripts = append(transcripts, x.run(t, m))
				})
			}
			if t.Failed() || len(transcripts) < len(modes) {
				return
			}
			if diff := cmp.Diff(transcripts[0], transcripts[1]); diff != "" {
				t.Errorf("the modes differ (-%s +%s):\n%s", modes[0].scopes, modes[1].scopes, diff)
			}
		})
	}
}

// running is an example with all that it needs running beside Aether.
type running struct {
	*example.Example
	objects  []stage.Object
	made     *stage.Certificates
	backends map[string][]*echo.Server // by the EndpointSlice's name
	ports    map[int]int
}

// prepare starts the example's backends.
func prepare(t *testing.T, e *example.Example) *running {
	t.Helper()
	objects, err := stage.Objects(e)
	if err != nil {
		t.Fatal(err)
	}
	made, err := stage.Make(e)
	if err != nil {
		t.Fatal(err)
	}
	x := &running{Example: e, objects: objects, made: made, backends: map[string][]*echo.Server{}, ports: map[int]int{}}
	places := stage.Places(objects)
	for name := range e.Backends {
		if !slices.ContainsFunc(places, func(p stage.Place) bool { return p.Slice == name }) {
			t.Fatalf("backend %s: no EndpointSlice of that name has an address", name)
		}
	}
	for _, p := range places {
		config, err := made.Backend(e, p.Slice)
		if err != nil {
			t.Fatal(err)
		}
		s, err := echo.Start(t.Context(), echo.Config{Name: p.Slice, Address: p.Address, TLS: config})
		if err != nil {
			t.Fatal(err)
		}
		x.ports[p.Port] = s.Port
		if e.Backends[p.Slice].Absent {
			s.Close() // the port is free, and nobody has it
			continue
		}
		t.Cleanup(s.Close)
		x.backends[p.Slice] = append(x.backends[p.Slice], s)
	}
	return x
}

// record is what the modes must agree on.
type record struct {
	Request string
	Answer  probe.Answer
	Seen    []echo.Seen
}

// run sends the example's requests in one mode.
func (x *running) run(t *testing.T, m *mode) []record {
	var transcript []record
	for _, without := range x.phases() {
		text, err := stage.Text(x.objects, x.made.Objects, stage.Change{Scopes: m.scopes, Ports: x.ports, Without: without, Serial: m.next()})
		if err != nil {
			t.Fatal(err)
		}
		m.apply(t, text)
		m.expectStatuses(t, x, without)
		for i := range x.Requests {
			r := &x.Requests[i]
			if slices.Equal(r.Without, without) {
				transcript = append(transcript, x.send(t, m, r)...)
			}
		}
	}
	return transcript
}

// phases are the different sets of objects that are left out, in the order in which
// they first appear.
func (x *running) phases() [][]string {
	var out [][]string
	add := func(without []string) {
		if !slices.ContainsFunc(out, func(o []string) bool { return slices.Equal(o, without) }) {
			out = append(out, without)
		}
	}
	for _, r := range x.Requests {
		add(r.Without)
	}
	for _, s := range x.Statuses {
		add(s.Without)
	}
	return out
}

// send sends a request as often as it says, and reports what differs.
func (x *running) send(t *testing.T, m *mode, r *example.Request) []record {
	t.Helper()
	p := &probe.Prober{Offset: m.offset, Trust: x.made.Trust, Clients: x.made.Clients}
	log := m.accessLogSize()
	shares := map[string]int{}
	var ids []string
	var out []record
	for i := range r.Times {
		id := fmt.Sprintf("%s %s %d", m.scopes, r.Name, i)
		a := p.Send(t.Context(), r, id)
		seen := x.of(a.Backend(), id)
		if wrong := probe.Differences(a, seen, &r.Expect); len(wrong) > 0 {
			x.fail(t, r, wrong, a, seen)
			if r.Times > 1 {
				return nil
			}
		}
		who := a.Backend()
		if who == "" {
			who = fmt.Sprint(a.Status)
		}
		shares[who]++
		ids = append(ids, id)
		out = append(out, normal(record{Request: r.Name, Answer: a, Seen: seen}))
	}
	var wrong []string
	if r.Expect.Shares != nil {
		wrong = append(wrong, probe.Counts("share of", r.Expect.Shares, shares)...)
	}
	if r.Expect.Copies != nil {
		x.waitForCopies(t.Context(), r, ids)
		copies := map[string]int{}
		for name := range x.backends {
			copies[name] = x.count(name, ids)
		}
		wrong = append(wrong, probe.Counts("requests at", r.Expect.Copies, copies)...)
	}
	if r.Expect.AccessLog != nil {
		wrong = append(wrong, m.logged(t, r, log)...)
	}
	if len(wrong) > 0 {
		x.fail(t, r, wrong, probe.Answer{}, nil)
	}
	if r.Times > 1 {
		return nil // chance decides who answers
	}
	return out
}

// of is the requests of that id at a backend.
func (x *running) of(backend, id string) []echo.Seen {
	var out []echo.Seen
	for _, s := range x.backends[backend] {
		out = append(out, s.Of(id)...)
	}
	return out
}

// count is how many requests of those ids a backend has had.
func (x *running) count(backend string, ids []string) int {
	n := 0
	for _, id := range ids {
		n += len(x.of(backend, id))
	}
	return n
}

// waitForCopies waits until every backend has had as many of those requests as it must: a
// mirror's copy comes when it comes. Where it does not come, the count says so.
func (x *running) waitForCopies(ctx context.Context, r *example.Request, ids []string) {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	for name, want := range r.Expect.Copies {
		for _, s := range x.backends[name] {
			// Exits: there are enough, or patience is over.
			for {
				grown := s.Grown()
				if x.count(name, ids) >= want.Low {
					break
				}
				select {
				case <-grown:
				case <-ctx.Done():
					return
				}
			}
		}
	}
}

func (x *running) fail(t *testing.T, r *example.Request, wrong []string, a probe.Answer, seen []echo.Seen) {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  sent: %s, %s to port %d\n", x.Name, r.Name, r.Send, r.Protocol, r.Port)
	for _, w := range wrong {
		fmt.Fprintf(&b, "  %s\n", w)
	}
	if a.Status != 0 {
		fmt.Fprintf(&b, "  answer: %d %s\n", a.Status, a.Protocol)
		for _, name := range slices.Sorted(maps.Keys(a.Headers)) {
			fmt.Fprintf(&b, "    %s: %s\n", strings.ToLower(name), strings.Join(a.Headers[name], ", "))
		}
		fmt.Fprintf(&b, "    %s\n", strings.ReplaceAll(strings.TrimSpace(a.Body), "\n", "\n    "))
	}
	for _, s := range seen {
		text, _ := json.Marshal(s) // for a person
		fmt.Fprintf(&b, "  backend saw: %s\n", text)
	}
	t.Error(b.String())
}

// normal leaves out what differs from one request to the next.
func normal(r record) record {
	volatile := []string{"x-request-id", "date", echo.IDHeader, "x-envoy-upstream-service-time"}
	clean := func(h map[string][]string) map[string][]string {
		out := map[string][]string{}
		for name, values := range h {
			if !slices.Contains(volatile, strings.ToLower(name)) {
				out[name] = values
			}
		}
		return out
	}
	if r.Answer.Backend() != "" && strings.Contains(r.Answer.Headers.Get("content-type"), "application/") {
		r.Answer.Body = "" // what the backend saw
	}
	delete(r.Answer.Headers, "Content-Length") // of the same
	r.Answer.Headers = clean(r.Answer.Headers)
	r.Answer.Why = ""
	if r.Answer.Status == 101 {
		r.Answer.Body = ""
	}
	for i := range r.Seen {
		r.Seen[i].Headers = clean(r.Seen[i].Headers)
	}
	return r
}

// logged compares the request's line of the access log.
func (m *mode) logged(t *testing.T, r *example.Request, from int64) []string {
	t.Helper()
	_, _, authority, _ := r.Target()
	var line map[string]any
	m.eventually(t, "the access log has a line for "+authority, func() (bool, string) {
		text, err := os.ReadFile(m.in.State.Log("access"))
		if err != nil || int64(len(text)) < from {
			return false, fmt.Sprint(err)
		}
		for l := range bytes.SplitSeq(text[from:], []byte("\n")) {
			if json.Unmarshal(l, &line) == nil && line["host"] == authority {
				return true, ""
			}
		}
		return false, string(text[from:])
	})
	got := map[string]string{}
	for key, value := range line {
		if value != nil {
			got[key] = fmt.Sprint(value)
		}
	}
	return probe.Fields("access log", r.Expect.AccessLog, got)
}

func (m *mode) accessLogSize() int64 {
	info, err := os.Stat(filepath.Clean(m.in.State.Log("access")))
	if err != nil {
		return 0
	}
	return info.Size()
}
