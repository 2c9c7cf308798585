package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	runtimev3 "github.com/envoyproxy/go-control-plane/envoy/service/runtime/v3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	configv1 "aether.io/aether/api/config/v1"
	"aether.io/aether/internal/resource"
	"aether.io/aether/internal/run"
	"aether.io/aether/test/bench/rig"
)

const (
	second   = "proxy-2" // with an Envoy, beside the rig's own
	rateKey  = "/web/80" // what the runtime key of the Gateway's rate ends in
	settling = time.Minute

	// How long after one look at the real Envoys comes the next: while each edit is timed, and in
	// a storm, where only the last is, and where looking is to take no part of the machine.
	closely = 2 * time.Millisecond
	widely  = 20 * time.Millisecond
)

// fleet is what proxies were seen to run, by the rate of the edit.
type fleet struct {
	names []string // of those with an Envoy, last

	mu   sync.Mutex // guards what follows
	more chan struct{}
	rate []int // of each proxy; -1: none yet
	seen []time.Time
}

func newFleet(simulated int) *fleet {
	f := &fleet{names: []string{"", second}, more: make(chan struct{}), rate: make([]int, simulated+2), seen: make([]time.Time, simulated+2)}
	for i := range f.rate {
		f.rate[i] = -1
	}
	return f
}

// set notes what proxy i runs.
func (f *fleet) set(i, rate int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rate[i] != rate {
		f.rate[i], f.seen[i] = rate, time.Now()
		close(f.more)
		f.more = make(chan struct{})
	}
}

// take notes what a simulated proxy is sent.
func (f *fleet) take(i int, u resource.Update) {
	for _, r := range u.Changed {
		var layer runtimev3.Runtime
		if !strings.HasSuffix(r.Name.TypeURL, ".Runtime") || proto.Unmarshal(r.Payload, &layer) != nil {
			continue
		}
		for key, value := range layer.GetLayer().GetFields() {
			if strings.Contains(key, "success") && strings.HasSuffix(key, rateKey) {
				f.set(i, int(value.GetNumberValue()))
			}
		}
	}
}

// watched calls do while the real Envoys are asked again and again.
func (f *fleet) watched(ctx context.Context, r *rig.Rig, every time.Duration, do func() error) error {
	watching, stop := context.WithCancel(ctx)
	var watcher sync.WaitGroup
	watcher.Go(func() { f.watch(watching, r, every) })
	defer watcher.Wait()
	defer stop()
	return do()
}

// watch asks the real Envoys until ctx is done.
func (f *fleet) watch(ctx context.Context, r *rig.Rig, every time.Duration) {
	for ctx.Err() == nil {
		for i, name := range f.names {
			var runtime struct {
				Entries map[string]struct {
					FinalValue string `json:"final_value"`
				} `json:"entries"`
			}
			text, err := r.EnvoyOf(ctx, name, "/runtime")
			if err != nil || json.Unmarshal([]byte(text), &runtime) != nil {
				continue
			}
			for key, e := range runtime.Entries {
				var rate float64
				if _, err := fmt.Sscan(e.FinalValue, &rate); err == nil && strings.Contains(key, "success") && strings.HasSuffix(key, rateKey) {
					f.set(len(f.rate)-len(f.names)+i, int(rate))
				}
			}
		}
		if run.Sleep(ctx, every) != nil {
			return
		}
	}
}

// await returns, for each proxy, how long after at it ran the rate, when all do.
func (f *fleet) await(ctx context.Context, rate int, at time.Time) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for {
		f.mu.Lock()
		behind, more := 0, f.more
		took := make([]time.Duration, len(f.rate))
		for i := range f.rate {
			if f.rate[i] != rate {
				behind++
			}
			took[i] = max(0, f.seen[i].Sub(at)) // it may be there before the API server has answered
		}
		f.mu.Unlock()
		if behind == 0 {
			return took, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, fmt.Errorf("%d of %d proxies do not run the rate %d after %s", behind, len(took), rate, settling)
		}
	}
}

// Storm is many edits of one object.
type Storm struct {
	PerSecond int
	Writers   int // edits under way at a time, each of which waits for its answer; many are in each other's way
	Lasts     time.Duration
}

// MeshConfigs edits a MeshConfig that so many simulated proxies and two real ones run, one
// edit at a time and then in a storm, and reports how long it took to be run and to be told.
func MeshConfigs(ctx context.Context, r *rig.Rig, out io.Writer, simulated, edits int, storm Storm) error {
	if err := r.API.Create(ctx, &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: "web"}, Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "coxswain", Listeners: []gatewayv1.Listener{{Name: "http", Port: 80, Protocol: gatewayv1.HTTPProtocolType}},
	}}); err != nil {
		return err
	}
	if err := r.API.Create(ctx, meshConfig(100)); err != nil {
		return err
	}
	if _, err := r.Reach(ctx, "web"); err != nil {
		return err
	}
	if err := r.AddProxy(ctx, second); err != nil {
		return err
	}
	f := newFleet(simulated)
	if err := r.Simulate(ctx, simulated, f.take); err != nil {
		return err
	}
	if err := f.watched(ctx, r, closely, func() error {
		if _, err := f.await(ctx, 100, time.Now()); err != nil {
			return err
		}
		if _, err := told(ctx, r, simulated+2); err != nil {
			return err
		}
		return oneByOne(ctx, r, out, f, edits)
	}); err != nil {
		return err
	}
	return f.watched(ctx, r, widely, func() error { return inAStorm(ctx, r, out, f, storm) })
}

func meshConfig(rate uint32) *configv1.MeshConfig {
	return &configv1.MeshConfig{
		TypeMeta:   metav1.TypeMeta{APIVersion: configv1.GroupVersion().String(), Kind: configv1.KindMeshConfig},
		ObjectMeta: metav1.ObjectMeta{Namespace: rig.Namespace, Name: configv1.MeshConfigName},
		Spec:       &configv1.MeshConfigSpec{Proxy: &configv1.ProxyConfig{AccessLogsEnabled: ptr.To(true), AccessLogSuccessSampleRate: &rate}},
	}
}

func edit(ctx context.Context, r *rig.Rig, rate int) error {
	return r.API.Patch(ctx, meshConfig(0), fmt.Sprintf(`{"spec":{"proxy":{"accessLogSuccessSampleRate":%d}}}`, rate))
}

// told returns when the status says that all proxies run the object as it is, and since when.
func told(ctx context.Context, r *rig.Rig, proxies int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	for {
		now := &configv1.MeshConfig{}
		err := r.API.Get(ctx, rig.Namespace, configv1.MeshConfigName, now)
		if p := now.Status.Proxies; err == nil && p != nil && now.Status.ObservedGeneration == now.Generation && int(p.Applied) == proxies && p.Applied == p.Total {
			return time.Now(), nil
		}
		if run.Sleep(ctx, 5*time.Millisecond) != nil {
			return time.Time{}, fmt.Errorf("the status does not say that %d proxies run it: %+v (%w)", proxies, now.Status.Proxies, errors.Join(err, ctx.Err()))
		}
	}
}

func oneByOne(ctx context.Context, r *rig.Rig, out io.Writer, f *fleet, edits int) error {
	var each, last, status []time.Duration
	writes, err := r.StatusWrites(ctx)
	if err != nil {
		return err
	}
	for i := range edits {
		if err := run.Sleep(ctx, time.Second); err != nil { // a system at rest, as it mostly is
			return err
		}
		if err := edit(ctx, r, i%100); err != nil {
			return err
		}
		at := time.Now()
		took, err := f.await(ctx, i%100, at)
		if err != nil {
			return err
		}
		when, err := told(ctx, r, len(took))
		if err != nil {
			return err
		}
		each, last, status = append(each, took...), append(last, slices.Max(took)), append(status, when.Sub(at))
	}
	after, err := r.StatusWrites(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d edits of a MeshConfig, %d proxies of which 2 have an Envoy, after the API server's answer\n", edits, len(f.rate))
	for name, list := range map[string][]time.Duration{"a proxy runs it": each, "all run it": last, "status says so": status} {
		slices.Sort(list)
		fmt.Fprintf(out, "  %-16s p50 %8s  max %8s\n", name, list[len(list)/2].Round(time.Millisecond), list[len(list)-1].Round(time.Millisecond))
	}
	fmt.Fprintf(out, "  status writes an edit: %.1f\n", (after-writes)/float64(edits))
	return nil
}

// inAStorm edits so many times a second, and once more when all of these have been answered: that
// is the last.
func inAStorm(ctx context.Context, r *rig.Rig, out io.Writer, f *fleet, storm Storm) error {
	before, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	writes, err := r.StatusWrites(ctx)
	if err != nil {
		return err
	}
	due := make(chan int)
	var editors sync.WaitGroup
	var mu sync.Mutex // guards failed, done and refused
	var failed error
	done, refused := 0, 0
	for range storm.Writers {
		editors.Go(func() {
			for i := range due {
				err := edit(ctx, r, i%100)
				mu.Lock()
				if err == nil {
					done++
				} else {
					failed = err
					refused++
				}
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	var half rig.Usage
	// An edit that is late is made up for, so that the rate is reached if it can be.
	for i := 0; time.Since(began) < storm.Lasts && ctx.Err() == nil; i++ {
		if wait := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(storm.PerSecond))); wait > 0 && run.Sleep(ctx, wait) != nil {
			break
		}
		due <- i
		if half.RSS == 0 && time.Since(began) > storm.Lasts/2 {
			if half, err = r.Usage(ctx); err != nil {
				return err
			}
		}
	}
	close(due)
	editors.Wait()
	took := time.Since(began)
	if done == 0 {
		return errors.Join(errors.New("no edit of the storm was taken"), failed)
	}
	if err := edit(ctx, r, 100); err != nil {
		return err
	}
	at := time.Now()
	each, err := f.await(ctx, 100, at)
	if err != nil {
		return err
	}
	when, err := told(ctx, r, len(each))
	if err != nil {
		return err
	}
	after, err := r.Usage(ctx)
	if err != nil {
		return err
	}
	wrote, err := r.StatusWrites(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d edits in %s (%.0f a second; asked for %d a second, by %d writers), then one more\n", done, took.Round(time.Second), float64(done)/took.Seconds(), storm.PerSecond, storm.Writers)
	if refused > 0 {
		fmt.Fprintf(out, "  beside these %d were not taken, the last: %v\n", refused, failed)
	}
	fmt.Fprintf(out, "  all run the last after %s, status says so after %s\n", slices.Max(each).Round(time.Millisecond), when.Sub(at).Round(time.Millisecond))
	fmt.Fprintf(out, "  status writes %.0f, snapshots to each proxy %.0f; controller: CPU %s, RSS %d MiB before, %d at half, %d after\n",
		wrote-writes, (after.Snapshots-before.Snapshots)/float64(len(f.rate)), (after.CPU - before.CPU).Round(10*time.Millisecond), before.RSS>>20, half.RSS>>20, after.RSS>>20)
	return nil
}
