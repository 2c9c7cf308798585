package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"aether.io/aether/internal/run"
	"aether.io/aether/test/bench/rig"
)

// marker is the response header by which a flip is seen.
const marker = "X-Flip"

// Flips changes a route under constant traffic, so many times at an interval, and reports
// what was answered and how long each change took to be seen. NewRoute must have run.
func Flips(ctx context.Context, r *rig.Rig, out io.Writer, flips int, every time.Duration) error {
	at, err := r.Reach(ctx, gateway)
	if err != nil {
		return err
	}
	c := newClient(at)
	defer c.CloseIdleConnections()
	var (
		traffic sync.WaitGroup
		mu      sync.Mutex // guards what follows
		codes   = map[int]int{}
		first   = map[string]time.Time{} // when each flip was seen first
	)
	load, stop := context.WithCancel(ctx)
	defer stop()
	for range 2 {
		traffic.Go(func() {
			for load.Err() == nil {
				code, header := c.get(ctx, host(0))
				mu.Lock()
				codes[code]++
				if flip := header.Get(marker); first[flip].IsZero() {
					first[flip] = time.Now()
				}
				mu.Unlock()
				if run.Sleep(load, time.Millisecond) != nil {
					return
				}
			}
		})
	}
	began := map[string]time.Time{}
	for i := range flips {
		flip := fmt.Sprint(i + 1)
		began[flip] = time.Now()
		if err := r.API.Patch(ctx, route(0, services), flipped(flip, i%services)); err != nil {
			return err
		}
		if err := run.Sleep(ctx, every); err != nil {
			return err
		}
	}
	if err := run.Sleep(ctx, time.Second); err != nil { // the last one has its time too
		return err
	}
	stop()
	traffic.Wait()
	var took times
	for flip, at := range began {
		if seen := first[flip]; !seen.IsZero() {
			took = append(took, seen.Sub(at))
		}
	}
	fmt.Fprintf(out, "a route changed %d times, every %s, under traffic: %d seen, mean, p50, max %s\n", flips, every, len(took), took)
	fmt.Fprintf(out, "  answers meanwhile, by status: %v\n", codes)
	return only(codes, http.StatusOK)
}

// flipped is a change of the route: to another service, with another header.
func flipped(flip string, service int) string {
	return fmt.Sprintf(`{"spec":{"rules":[{"matches":[{"path":{"type":"PathPrefix","value":"/"}}],
"filters":[{"type":"ResponseHeaderModifier","responseHeaderModifier":{"set":[{"name":%q,"value":%q}]}}],
"backendRefs":[{"name":"s%d","port":80}]}]}}`, marker, flip, service)
}
