package kube

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"aether.io/aether/internal/run"
	"aether.io/aether/test/bench/rig"
)

// AtRest measures what the controller uses with so many routes, each to a Service of its
// own, while one route and one endpoint change every second.
func AtRest(ctx context.Context, r *rig.Rig, out io.Writer, routes int, during time.Duration) error {
	if _, err := prepare(ctx, r); err != nil {
		return err
	}
	began := time.Now()
	if err := populate(ctx, r, routes, routes); err != nil {
		return err
	}
	filled, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d routes and Services\n  created and told of in %s: CPU %s, memory now %d MiB, at most %d MiB, sent %.1f MB\n", routes,
		time.Since(began).Round(time.Second), filled.CPU, filled.RSS>>20, filled.Peak>>20, filled.Sent/1e6)
	if err := run.Sleep(ctx, 10*time.Second); err != nil { // until what the filling left is done
		return err
	}
	quiet, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	if err := run.Sleep(ctx, during/2); err != nil {
		return err
	}
	before, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	tell(out, "nothing changes", quiet, before, during/2)
	started := time.Now()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for i := 0; time.Since(started) < during; i++ {
		if err := change(ctx, r, i%routes, i); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	after, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	tell(out, "a route and an endpoint change each second", before, after, time.Since(started))
	return nil
}

// change changes one route and one endpoint.
func change(ctx context.Context, r *rig.Rig, i, round int) error {
	if err := r.API.Patch(ctx, route(i, i+1), flipped(fmt.Sprint(round), i)); err != nil {
		return err
	}
	s := slice(r, i)
	body := fmt.Sprintf(`{"endpoints":[{"addresses":[%q]},{"addresses":["198.51.100.%d"]}]}`, r.Backend.IP, 1+round%250)
	_, err := r.API.Discovery.EndpointSlices(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	return err
}

func tell(out io.Writer, what string, before, after rig.Usage, took time.Duration) {
	fmt.Fprintf(out, "  %s, %s: %.4f cores, memory %d MiB (at most %d), %.2f kB/s to the proxy\n", what, took.Round(time.Second),
		(after.CPU-before.CPU).Seconds()/took.Seconds(), after.RSS>>20, after.Peak>>20, (after.Sent-before.Sent)/1000/took.Seconds())
}
