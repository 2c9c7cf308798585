//go:build component

package features_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"aether.io/aether/internal/changelog"
	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/test/instance"
	"aether.io/aether/test/features/example"
)

// file is the one that holds all manifests of an example. It is replaced as a whole, so
// that the controller takes one example's place with the next in one step.
const file = "example.yaml"

// first holds the ports of an instance, so that the next one takes others.
const first = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: coxswain}
spec: {controllerName: config.aether.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: coxswain, listeners: [{name: http, protocol: HTTP, port: 8080}]}
`

// mode is an instance that cuts routes into scopes in one way.
type mode struct {
	scopes string
	offset int
	in     *instance.Instance
	client *inspect.Client
	serial int
}

func startMode(t *testing.T, scopes string) *mode {
	t.Helper()
	work := t.TempDir()
	dir := filepath.Join(work, "manifests")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	m := &mode{scopes: scopes}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if m.offset, err = instance.FreeOffset(80, 443, 8080, 8081, 8443, 8444); err != nil {
		t.Fatal(err)
	}
	m.in, err = instance.Start(t.Context(), instance.Config{
		Aetherctl: filepath.Join(binaries, "aetherctl"), Envoy: envoy, Dir: dir, StateDir: filepath.Join(work, "state"), Offset: m.offset,
		Args: []string{"--drain", "1s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.client = inspect.NewClient(m.in.State.ControllerSocket())
	t.Cleanup(func() {
		m.client.Close()
		if err := m.in.Stop(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	return m
}

func (m *mode) next() int { m.serial++; return m.serial }

// apply replaces all manifests and waits until the controller says that every proxy has
// answered for what came of it.
func (m *mode) apply(t *testing.T, text string) {
	t.Helper()
	c, err := m.in.Apply(t.Context(), file, text)
	if err != nil {
		t.Fatalf("%v; manifests:\n%s\n%s", err, text, m.in.Dump())
	}
	if c.State != changelog.Live && c.State != changelog.NoEffect {
		t.Errorf("the controller reports: %s", c)
	}
	m.noProblems(t)
}

func (m *mode) noProblems(t *testing.T) {
	t.Helper()
	var problems []json.RawMessage
	if err := m.client.Get(t.Context(), inspect.ProblemsPath, &problems); err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("the controller reports a problem: %s", p)
	}
}

// expectStatuses waits until statuses are as expected.
func (m *mode) expectStatuses(t *testing.T, x *running, without []string) {
	t.Helper()
	m.eventually(t, "statuses are as expected", func() (bool, string) {
		var all inspect.Statuses
		if err := m.client.Get(t.Context(), inspect.StatusPath, &all); err != nil {
			return false, err.Error()
		}
		wrong := statusDifferences(x, without, all.Documents)
		return all.Settled && len(wrong) == 0, fmt.Sprintf("settled: %t\n  %s", all.Settled, strings.Join(wrong, "\n  "))
	})
}

// eventually waits until ok, and reports what it last said.
func (m *mode) eventually(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	deadline := time.Now().Add(statusPatience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	// Exits: ok, or the deadline.
	for {
		done, seen := ok()
		if done {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("%s: gave up waiting until %s: %s", m.scopes, what, seen)
			return
		}
		<-tick.C
	}
}

// statusPatience is shorter: an example that does not work should not take long.
const statusPatience = 5 * time.Second

// document is a status as far as examples look at it.
type document struct {
	Conditions []metav1.Condition
	Parents    []struct {
		ParentRef struct {
			Kind, Namespace, Name, SectionName string
			Port                               int
		}
		Conditions []metav1.Condition
	}
	Ancestors []struct {
		AncestorRef struct{ Kind, Namespace, Name, SectionName string }
		Conditions  []metav1.Condition
	}
	Listeners []struct {
		Name           string
		AttachedRoutes int32
		SupportedKinds []struct{ Kind string }
		Conditions     []metav1.Condition
	}
}

// statusDifferences says how statuses differ from what is expected, by the example or as
// the usual.
func statusDifferences(x *running, without []string, docs []inspect.StatusDocument) []string {
	var wrong []string
	byKey := map[string]document{}
	generation := map[string]int64{}
	for _, d := range docs {
		key := strings.Join(slices.DeleteFunc([]string{d.Kind, d.Namespace, d.Name}, func(s string) bool { return s == "" }), "/")
		var doc document
		if err := json.Unmarshal(d.Status, &doc); err != nil {
			return []string{err.Error()}
		}
		byKey[key], generation[key] = doc, d.Generation
	}
	special := map[string]bool{}
	for _, s := range x.Statuses {
		if !slices.Equal(s.Without, without) {
			continue
		}
		special[s.Object] = true
		doc, ok := byKey[s.Object]
		if !ok {
			wrong = append(wrong, s.Object+" has no status")
			continue
		}
		wrong = append(wrong, compare(s, doc, generation[s.Object])...)
	}
	for _, o := range x.objects {
		key := o.Key()
		if special[key] || slices.Contains(without, key) {
			continue
		}
		wrong = append(wrong, usual(key, o.Kind(), byKey)...)
	}
	return wrong
}

// usual is how an object differs from one with which all is well.
func usual(key, kind string, byKey map[string]document) []string {
	doc, ok := byKey[key]
	want := map[string][]string{
		"GatewayClass": {"Accepted"}, "Gateway": {"Accepted", "Programmed"}, "HTTPRoute": {"Accepted", "ResolvedRefs"},
		"BackendTLSPolicy": {"Accepted", "ResolvedRefs"}, "ListenerSet": {"Accepted", "Programmed"},
	}[kind]
	switch {
	case want == nil:
		return nil
	case !ok:
		return []string{key + " has no status"}
	}
	var wrong []string
	check := func(where string, have []metav1.Condition) {
		for _, name := range want {
			if text, ok := find(have, name); !ok || !strings.HasPrefix(text, "True ") {
				wrong = append(wrong, fmt.Sprintf("%s%s: %s is %s, want True", key, where, name, text))
			}
		}
	}
	switch kind {
	case "HTTPRoute":
		if len(doc.Parents) == 0 {
			wrong = append(wrong, key+" has no parents")
		}
		for _, p := range doc.Parents {
			check(" at "+p.ParentRef.Name, p.Conditions)
		}
	case "BackendTLSPolicy":
		if len(doc.Ancestors) == 0 {
			wrong = append(wrong, key+" has no ancestors")
		}
		for _, a := range doc.Ancestors {
			check(" at "+a.AncestorRef.Name, a.Conditions)
		}
	default:
		check("", doc.Conditions)
	}
	return wrong
}

// find is a condition's status and reason.
func find(list []metav1.Condition, kind string) (string, bool) {
	for _, c := range list {
		if c.Type == kind {
			return string(c.Status) + " " + c.Reason + ": " + c.Message, true
		}
	}
	return example.Absent, false
}

// compare says how one object's status, or a part of it, differs.
func compare(s example.Status, doc document, generation int64) []string {
	var wrong []string
	add := func(format string, args ...any) {
		where := s.Object
		if part := s.Parent + s.Listener; part != "" {
			where += " (" + part + ")"
		}
		wrong = append(wrong, where+": "+fmt.Sprintf(format, args...))
	}
	conditions, found := doc.Conditions, true
	switch {
	case s.Parent != "":
		conditions, found = parent(s.Parent, doc)
	case s.Listener != "":
		found = false
		for _, l := range doc.Listeners {
			if l.Name != s.Listener {
				continue
			}
			conditions, found = l.Conditions, true
			if s.AttachedRoutes != nil && *s.AttachedRoutes != l.AttachedRoutes {
				add("attachedRoutes: want %d, got %d", *s.AttachedRoutes, l.AttachedRoutes)
			}
			kinds := []string{}
			for _, k := range l.SupportedKinds {
				kinds = append(kinds, k.Kind)
			}
			if s.SupportedKinds != nil && !slices.Equal(s.SupportedKinds, kinds) {
				add("supportedKinds: want %v, got %v", s.SupportedKinds, kinds)
			}
		}
	}
	if !found {
		add("its status says nothing of it")
		return wrong
	}
	for kind, want := range s.Conditions {
		got, present := find(conditions, kind)
		if want == example.Absent {
			if present {
				add("%s: want none, got %s", kind, got)
			}
			continue
		}
		if !strings.HasPrefix(got, want+":") {
			add("%s: want %s, got %s", kind, want, got)
		}
	}
	for _, c := range conditions {
		if c.ObservedGeneration != generation {
			add("%s is of generation %d, the status of %d", c.Type, c.ObservedGeneration, generation)
		}
	}
	return wrong
}

// parent is the conditions of a parent or ancestor: "name", or "name/section".
func parent(want string, doc document) ([]metav1.Condition, bool) {
	name, section, _ := strings.Cut(want, "/")
	for _, p := range doc.Parents {
		if p.ParentRef.Name == name && p.ParentRef.SectionName == section {
			return p.Conditions, true
		}
	}
	for _, a := range doc.Ancestors {
		if a.AncestorRef.Name == name && a.AncestorRef.SectionName == section {
			return a.Conditions, true
		}
	}
	return nil, false
}
