//go:build cluster

package spire_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"aether.io/aether/test/pods"
)

// deadline is of one write: what a person would call a failure.
const deadline = 10 * time.Second

// wrong is a spec that the definition lets pass, which knows the field by its other name only, and
// the webhook does not.
const wrong = `{"spec": {"proxy": {"trace_sample_rate": -1}}}`

// writer writes the test namespace's MeshConfig.
type writer struct {
	*pods.Rig
	client dynamic.ResourceInterface
}

func newWriter(r *pods.Rig) writer {
	r.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", r.Cluster.Kubeconfig())
	if err != nil {
		r.Fatal(err)
	}
	config.Timeout = deadline
	config.QPS = -1                           // it is as fast as it is
	config.WarningHandler = rest.NoWarnings{} // that something has no effect here
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		r.Fatal(err)
	}
	r.Apply("{apiVersion: config.aether.io/v1, kind: MeshConfig, metadata: {name: default}, spec: {}}")
	return writer{r, client.Resource(schema.GroupVersionResource{Group: "config.aether.io", Version: "v1", Resource: "meshconfigs"}).Namespace(r.Namespace)}
}

func (w writer) patch(ctx context.Context, patch string) error {
	_, err := w.client.Patch(ctx, "default", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// refused says what is not as it should be when something wrong is written: nothing if the
// webhook refused it. Nothing wrong is left there.
func (w writer) refused(ctx context.Context) string {
	err := w.patch(ctx, wrong)
	switch {
	case err == nil:
		if err := w.patch(ctx, `{"spec": {"proxy": null}}`); err != nil {
			return "something wrong was let through, and is still there: " + err.Error()
		}
		return "something wrong was let through"
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err), !strings.Contains(err.Error(), "admission webhook"):
		return "something wrong was refused, but not by the webhook: " + err.Error()
	}
	return ""
}

// flow writes right and wrong specs in turn, one write at a time, for as long as it is not
// stopped.
type flow struct {
	stop     context.CancelFunc
	done     chan struct{}
	writes   int      // of each kind
	problems []string // with the time of each; at most 20
}

// start begins to write every 100 ms.
func (w writer) start(t *testing.T) *flow {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &flow{stop: cancel, done: make(chan struct{})}
	t.Cleanup(cancel)
	began := time.Now()
	go func() {
		defer close(f.done)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			f.writes++
			// A write that is under way when the flow is stopped is none of its problems.
			right := w.patch(context.WithoutCancel(ctx), fmt.Sprintf(`{"spec": {"proxy": {"accessLogSuccessSampleRate": %d}}}`, f.writes%101))
			if right != nil {
				f.problem(began, "a right write failed: "+right.Error())
			}
			if text := w.refused(context.WithoutCancel(ctx)); text != "" {
				f.problem(began, text)
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return f
}

func (f *flow) problem(began time.Time, text string) {
	if len(f.problems) < 20 {
		f.problems = append(f.problems, fmt.Sprintf("after %.1f s, write %d: %s", time.Since(began).Seconds(), f.writes, text))
	}
}

// end stops the flow and fails the test for each problem.
func (f *flow) end(t *testing.T) {
	t.Helper()
	f.stop()
	<-f.done
	for _, p := range f.problems {
		t.Error(p)
	}
	t.Logf("%d right and %d wrong writes", f.writes, f.writes)
	if f.writes < 100 {
		t.Errorf("%d writes of each kind are too few to tell anything", f.writes)
	}
}
