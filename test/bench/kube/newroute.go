package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"

	"aether.io/aether/internal/run"
	"aether.io/aether/test/bench/rig"
)

const (
	services = 10 // all are used from the start: a new route is nothing but that
	patience = 30 * time.Second
)

// NewRoute measures how long a new route takes from before it is written to the API to the
// first 200 on its host, beside what a bare watch of the same object takes.
func NewRoute(ctx context.Context, r *rig.Rig, out io.Writer, routes, edits int) error {
	at, err := prepare(ctx, r)
	if err != nil {
		return err
	}
	if err := populate(ctx, r, services, routes); err != nil {
		return err
	}
	c := newClient(at)
	defer c.CloseIdleConnections()
	if _, err := c.until(ctx, host(routes-1), map[int]int{}); err != nil {
		return err
	}
	w, err := r.API.Watch(ctx, route(0, services))
	if err != nil {
		return err
	}
	defer w.Stop()
	seen := make(chan added, edits)
	go arrivals(w, seen) // ends with the watch
	var whole, bare, beyond times
	codes := map[int]int{}
	for i := routes; i < routes+edits; i++ {
		if err := run.Sleep(ctx, 50*time.Millisecond); err != nil { // a system at rest, as it mostly is
			return err
		}
		o := route(i, services)
		began := time.Now()
		created := make(chan error, 1)
		go func() { created <- r.API.Create(ctx, o) }()
		first, err := c.until(ctx, host(i), codes)
		if err := <-created; err != nil {
			return err
		}
		if err != nil {
			return err
		}
		watched, err := await(ctx, seen, o.Name)
		if err != nil {
			return err
		}
		whole, bare, beyond = append(whole, first.Sub(began)), append(bare, watched.Sub(began)), append(beyond, first.Sub(watched))
	}
	fmt.Fprintf(out, "new route, %d routes there            mean       p50       max\n", routes)
	for _, line := range []struct {
		name string
		took times
	}{{"a bare watch of the object", bare}, {"the first 200 on its host", whole}, {"beyond the watch", beyond}} {
		fmt.Fprintf(out, "  %-28s  %s\n", line.name, line.took)
	}
	fmt.Fprintf(out, "  answers meanwhile, by status: %v\n", codes)
	return only(codes, http.StatusOK, http.StatusNotFound)
}

// added is an object that a watch told of, and when.
type added struct {
	name string
	at   time.Time
}

func arrivals(w watch.Interface, seen chan<- added) {
	defer close(seen)
	for e := range w.ResultChan() {
		now := time.Now()
		if o, ok := e.Object.(rig.Object); ok && e.Type == watch.Added {
			seen <- added{o.GetName(), now}
		}
	}
}

// await is when the watch told of an object. Those that were there already are passed over.
func await(ctx context.Context, seen <-chan added, name string) (time.Time, error) {
	late := time.NewTimer(patience)
	defer late.Stop()
	for {
		select {
		case a, open := <-seen:
			if !open {
				return time.Time{}, fmt.Errorf("the watch ended before it told of %s", name)
			}
			if a.name == name {
				return a.at, nil
			}
		case <-late.C:
			return time.Time{}, fmt.Errorf("the watch does not tell of %s", name)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// times is durations of the same thing.
type times []time.Duration

func (t times) String() string {
	sorted := slices.Sorted(slices.Values(t))
	var sum time.Duration
	for _, d := range sorted {
		sum += d
	}
	n := len(sorted)
	if n == 0 {
		return "none"
	}
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	return fmt.Sprintf("%9s %9s %9s", round(sum/time.Duration(n)), round(sorted[n/2]), round(sorted[n-1]))
}

// only fails if there are status codes but these.
func only(codes map[int]int, expected ...int) error {
	for code := range codes {
		if !slices.Contains(expected, code) {
			return fmt.Errorf("status codes other than %v were seen: %v", expected, codes)
		}
	}
	return nil
}
