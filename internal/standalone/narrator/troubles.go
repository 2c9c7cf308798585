package narrator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"aether.io/aether/internal/inspect"
	"aether.io/aether/internal/standalone/poll"
	"aether.io/aether/internal/standalone/view"
)

// mostTold bounds the objects whose trouble is told at once; the rest is counted.
const mostTold = 10

// troubles compares what is wrong with objects with what was told of it.
type troubles struct{ told map[string]string } // by object

func newTroubles() *troubles { return &troubles{told: map[string]string{}} }

// verdict is news of one object.
type verdict struct {
	object string
	text   string
	bad    bool
	detail json.RawMessage
}

// news is whose trouble differs from what was told, sorted by object. What it returns
// counts as told. That an object has no status says something only once all is settled.
func (t *troubles) news(a answer) []verdict {
	now, detail := map[string]string{}, map[string]json.RawMessage{}
	there := map[string]bool{}
	for _, d := range a.docs {
		name := view.ObjectName(d)
		there[name] = true
		if list := view.Trouble(d); len(list) > 0 {
			now[name], detail[name] = strings.Join(list, "; "), d.Status
		}
	}
	for _, o := range a.idle {
		if a.settled {
			now[o] = view.WhyIdle(o)
		} else if t.told[o] != "" {
			now[o] = t.told[o]
		}
	}
	var out []verdict
	for _, o := range slices.Sorted(maps.Keys(now)) {
		if now[o] != t.told[o] {
			out = append(out, verdict{object: o, text: now[o], bad: true, detail: detail[o]})
		}
	}
	for _, o := range slices.Sorted(maps.Keys(t.told)) {
		if now[o] == "" && there[o] {
			out = append(out, verdict{object: o, text: "all is well again"})
		}
	}
	t.told = now
	return out
}

// lookAtStatuses asks Watch to look. It does not block.
func (n *Narrator) lookAtStatuses() {
	select {
	case n.look <- struct{}{}:
	default: // it will
	}
}

// lookEvery is how often it is looked for what changes with no change of an object behind
// it: a port is free again, Envoy has refused something. Where an answer takes long it is
// asked for less often, for a hundredth of the time at most.
const lookEvery = time.Second

// Watch tells whose status turns bad, or good again, and which ports are bound, whenever
// that changes, until ctx is done. It is for an instance that was told to be ready.
func (n *Narrator) Watch(ctx context.Context) error {
	controller := inspect.NewClient(n.c.State.ControllerSocket())
	defer controller.Close()
	return n.watch(ctx, controller)
}

func (n *Narrator) watch(ctx context.Context, controller *inspect.Client) error {
	again := time.NewTimer(lookEvery)
	defer again.Stop()
	calm := true // at the last look; if it was not, there is nothing to wait for
	// Exits: ctx is done.
	for {
		wait := patience
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-n.look:
		case <-again.C:
			if !calm {
				wait = 0
			}
		}
		statuses := settledStatuses(ctx, controller, wait)
		calm = statuses.calm()
		ports, known := boundPorts(ctx, controller)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		n.mu.Lock()
		if statuses.given {
			n.tellTroubles(time.Now(), statuses)
		}
		if known {
			n.tellPorts(time.Now(), ports)
		}
		n.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll.Rest(statuses.took)):
		}
		again.Reset(max(lookEvery, 100*statuses.took))
	}
}

// tellTroubles tells what is new in statuses. The caller holds mu.
func (n *Narrator) tellTroubles(at time.Time, statuses answer) {
	news := n.troubles.news(statuses)
	for i, v := range news {
		if i == mostTold && !n.c.JSON {
			n.print(line{At: at, Kind: "status", Message: fmt.Sprintf("! %s more; aetherctl status --dir %s shows all", view.Plural(len(news)-i, "object"), n.c.Dir)})
			return
		}
		mark := ""
		if v.bad {
			mark = "! "
		}
		n.print(line{At: at, Process: "controller", Kind: "status", Message: mark + v.object + ": " + v.text, Detail: v.detail})
	}
}
