package docket_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aether.io/aether/internal/configmap"
	"aether.io/aether/internal/object"
	"aether.io/aether/internal/quarantine"
	"aether.io/aether/internal/quarantine/docket"
	"aether.io/aether/internal/resource"
)

// place is a ConfigMap that an API server would take.
type place struct{ content configmap.Content }

func (p *place) String() string { return "ConfigMap here" }

func (p *place) Await(context.Context) (configmap.Content, error) { return p.content, nil }

func (p *place) Save(_ context.Context, c configmap.Content) error {
	if n := len(c.Text[docket.Key]); n > configmap.MaxContent-len(docket.Key) {
		return fmt.Errorf("%d bytes are too many", n)
	}
	p.content = c
	return nil
}

// book is a docket in a ConfigMap, and what it told last.
func book() (m docket.Map, at *place, told *error) {
	at, told = &place{}, new(error)
	return docket.Map{Place: at, OnFault: func(err error) { *told = err }}, at, told
}

func TestWhatIsSavedInAConfigMapIsLoaded(t *testing.T) {
	m, at, told := book()
	if got, err := m.Load(t.Context()); err != nil || len(got) > 0 {
		t.Fatalf("before anything was saved: %v, %v", got, err)
	}
	if err := m.Save(t.Context(), convictions()); err != nil {
		t.Fatal(err)
	}
	got, err := m.Load(t.Context())
	if err != nil || *told != nil {
		t.Fatal(err, *told)
	}
	if diff := cmp.Diff(convictions(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	at.content.Text[docket.Key] = strings.ReplaceAll(at.content.Text[docket.Key], "HTTPRoute/default/out", "out")
	if got, err := m.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "ConfigMap here") || len(got) != 1 {
		t.Errorf("of a damaged one: %v, %v", got, err)
	}
	if err := m.Save(t.Context(), nil); err != nil || !at.content.IsZero() {
		t.Errorf("with nobody convicted there is %v, %v", at.content, err)
	}
}

func TestWhatDoesNotFitIsToldAndTheRestIsSaved(t *testing.T) {
	m, _, told := book()
	all := convictions()
	n := resource.Name{TypeURL: "type.googleapis.com/t", Name: "ns/web/80|*"}
	big := route("big", strings.Repeat("x", 600<<10))
	bigger := route("bigger", strings.Repeat("x", 700<<10))
	for _, o := range []object.Object{big, bigger} {
		all[key(o.GetName())] = quarantine.Conviction{Content: quarantine.ContentOf(o), Instead: o, Resource: n, Detail: "no"}
	}
	if err := m.Save(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	got, err := m.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if *told == nil || !strings.Contains((*told).Error(), "HTTPRoute/default/bigger") || strings.Contains((*told).Error(), "HTTPRoute/default/big,") {
		t.Errorf("told %v, want the longest", *told)
	}
	less := all[key("bigger")]
	less.Instead = nil
	all[key("bigger")] = less
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
	delete(all, key("bigger"))
	if err := m.Save(t.Context(), all); err != nil || *told != nil {
		t.Errorf("when there is room: %v, told %v", err, *told)
	}
	// Reasons can be long too.
	all = map[object.Key]quarantine.Conviction{}
	for i := range 4 {
		all[key(fmt.Sprintf("r%d", i))] = quarantine.Conviction{Resource: n, Detail: strings.Repeat("x", 400<<10)}
	}
	if err := m.Save(t.Context(), all); err != nil || *told == nil {
		t.Fatalf("%v, told %v", err, *told)
	}
	if got, err := m.Load(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("%d are left, %v", len(got), err)
	}
}
