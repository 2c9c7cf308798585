package snapshot_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/snapshot"
)

func res(t *testing.T, name, content string) *resource.Resource {
	t.Helper()
	r, err := resource.New(name, wrapperspb.String(content))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func version(rs ...*resource.Resource) string {
	var s resource.Set
	for _, r := range rs {
		s.Add(r.Name, r.Hash)
	}
	return s.Version()
}

func TestHoldingApply(t *testing.T) {
	a1, a2, b, c := res(t, "a", "1"), res(t, "a", "2"), res(t, "b", "1"), res(t, "c", "1")
	tests := map[string]struct {
		held   []*resource.Resource
		update resource.Update
		want   resource.Delta
		err    error
	}{
		"a difference is added, replaced and removed": {
			held:   []*resource.Resource{a1, b},
			update: resource.Update{Version: version(a2, c), Changed: []*resource.Resource{a2, c}, Removed: []resource.Name{b.Name}},
			want:   resource.Delta{Changed: []*resource.Resource{a2, c}, Removed: []resource.Name{b.Name}},
		},
		"a full update removes what it does not bring": {
			held:   []*resource.Resource{a1, b},
			update: resource.Update{Version: version(a1, c), Full: true, Changed: []*resource.Resource{a1, c}},
			want:   resource.Delta{Changed: []*resource.Resource{c}, Removed: []resource.Name{b.Name}},
		},
		"removing what is not held differs in nothing": {
			held:   []*resource.Resource{a1},
			update: resource.Update{Version: version(a1), Removed: []resource.Name{c.Name}},
		},
		"a wrong version is refused and changes nothing": {
			held:   []*resource.Resource{a1},
			update: resource.Update{Version: version(a2), Changed: []*resource.Resource{b}},
			err:    snapshot.ErrVersion,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := snapshot.NewHolding(tt.held)
			got, err := h.Apply(tt.update)
			if !errors.Is(err, tt.err) {
				t.Fatalf("Apply: error %v, want %v", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("delta (-want +got):\n%s", diff)
			}
			want := tt.update.Version
			if tt.err != nil {
				want = version(tt.held...)
			}
			if got := h.Version(); got != want {
				t.Errorf("version %s, want %s", got, want)
			}
			if got := version(slices.Collect(h.All())...); got != want {
				t.Errorf("version of what is listed is %s, want %s", got, want)
			}
		})
	}
}

func TestNothingHeldHasNoVersion(t *testing.T) {
	var h snapshot.Holding
	if got := h.Version(); got != "" {
		t.Errorf("version of nothing is %q, want none", got)
	}
	if _, err := h.Apply(resource.Update{Version: version(), Full: true}); err != nil {
		t.Errorf("apply an empty world: %v", err)
	}
}
