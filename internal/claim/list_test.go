package claim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// leased is a Lease as a release has it, so many seconds after the first.
func leased(second int, namespace string, w Watches) coordinationv1.Lease {
	return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: w.name(), CreationTimestamp: metav1.Unix(int64(second), 0),
		Labels: map[string]string{Label: "aether"}, Annotations: map[string]string{Annotation: w.encode()},
	}}
}

func TestTooManyLeasesDecideNothing(t *testing.T) {
	for name, c := range map[string]struct {
		n    int
		of   func(i int) coordinationv1.Lease
		want string
	}{
		"of nobody": {maxLeases + 1, func(i int) coordinationv1.Lease {
			return coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: fmt.Sprint(i), Labels: map[string]string{Label: "x"}}}
		}, "more than 5000 have label " + Label},
		"in many namespaces": {maxEntries + 1, func(i int) coordinationv1.Lease {
			return leased(0, fmt.Sprintf("tenant-%d", i), Watches{Class: "c"})
		}, "more than 500 may be of releases"},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, func(t *testing.T, s *shelf) {
				a := s.join(t, "team-a", Watches{Class: "coxswain"})
				a.is(t, "before", true)
				for i := range c.n {
					l := c.of(i)
					s.put(&l)
				}
				time.Sleep(DefaultEvery)
				synctest.Wait()
				a.is(t, "there are too many", true)
				b := s.join(t, "team-b", Watches{Class: "b", Namespaces: []string{"team-b"}})
				b.is(t, "there are too many", false, "not known yet")
				for _, m := range []*member{a, b} {
					m.mu.Lock()
					if !strings.Contains(m.reach, c.want) {
						t.Errorf("told %q, want %q", m.reach, c.want)
					}
					m.mu.Unlock()
					m.stop()
				}
			})
		})
	}
}

// Of many Leases of one namespace the oldest count, and this release's own.
func TestManyLeasesOfOneNamespace(t *testing.T) {
	for _, namespace := range []string{"team-a", "team-b"} {
		c, err := New(Config{Store: &shelf{}, Namespace: "team-a", Release: "aether", Watches: Watches{Class: "own"}})
		if err != nil {
			t.Fatal(err)
		}
		r := reading{c: c, now: time.Now(), seen: map[id]sight{}, of: map[string]int{}}
		own := leased(100, "team-a", Watches{Class: "own"})
		page := []coordinationv1.Lease{own}
		for i := range 3 * maxOfOne {
			page = append(page, leased(3*maxOfOne-i, namespace, Watches{Class: fmt.Sprintf("c%d", i)}))
		}
		if err := r.page(page); err != nil {
			t.Fatal(err)
		}
		if r.out.own == nil || len(r.out.entries) != maxOfOne+1 || r.out.entries[0].Name != own.Name {
			t.Fatalf("%s: %d entries, own %v", namespace, len(r.out.entries), r.out.own)
		}
		for _, e := range r.out.entries[1:] {
			if e.Since.Unix() > maxOfOne {
				t.Errorf("%s: one made at %d counts", namespace, e.Since.Unix())
			}
		}
	}
}

// Somebody fills many Leases: few are asked for at a time, and no more than are enough.
func TestListingEndsWithItsTaker(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		if limit := r.URL.Query().Get("limit"); limit != fmt.Sprint(pageSize) {
			t.Errorf("it asks for %s", limit)
		}
		l := coordinationv1.LeaseList{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}}
		l.Continue = fmt.Sprint(n)
		for i := range pageSize {
			l.Items = append(l.Items, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Namespace: "tenant", Name: fmt.Sprintf("l%d-%d", n, i), Labels: map[string]string{Label: "x"},
				Annotations: map[string]string{"x": strings.Repeat("x", 1<<10)},
			}})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(l); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	api, err := NewAPI(&rest.Config{Host: server.URL, QPS: -1}, "aether-controller")
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Store: api, Namespace: "team-a", Release: "aether", Watches: Watches{Class: "c"}})
	if err != nil {
		t.Fatal(err)
	}
	if all, err := c.list(t.Context()); err == nil || !strings.Contains(err.Error(), "more than") || len(all.entries) != 0 || len(c.seen) != 0 {
		t.Errorf("%v; %d entries and %d Leases are kept", err, len(all.entries), len(c.seen))
	}
	if n := int(asked.Load()); n != maxLeases/pageSize+1 {
		t.Errorf("it asked %d times", n)
	}
}
